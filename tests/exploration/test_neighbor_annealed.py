"""N-GRPO-T against its worked example, and against N-GRPO where both are the same."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from contexts import step_context

from ngrpo.errors import SettingError
from ngrpo.exploration.base import StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.token import TokenSampling

GOLDEN = json.loads(Path(__file__).with_name("adaptive_mixing.json").read_text())["adaptive_mixing_schedule"]
ROWS, VOCABULARY = 400, 12
NEIGHBORS = torch.stack([torch.arange(VOCABULARY).roll(-shift) for shift in range(5)], dim=1).int()
LOGITS = 2 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))


def context(width: int, progress: int = 0) -> StepContext:
    return step_context(ROWS, end_ids=(7,), tables={"neighbors": NEIGHBORS[:, :width]}, progress=progress)


def test_rates_and_sizes_are_those_of_the_example() -> None:
    names = {"rho_start": "rate_start", "rho_end": "rate_end", "n": "schedule_iterations"}
    strategy = AnnealedNeighborMixing(**{names.get(name, name): value for name, value in GOLDEN["inputs"].items()})
    for iteration, rate, k in GOLDEN["outputs"]["iteration, rho, k"]:
        now = strategy.schedule(torch.tensor(int(iteration)))
        assert float(now["rate"]) == pytest.approx(rate, abs=1e-9)
        assert int(now["k"]) == k


@pytest.mark.parametrize("progress", [0, 3, 1000])
def test_equal_start_and_end_are_n_grpo_bit_for_bit(progress: int) -> None:
    annealed = AnnealedNeighborMixing(0.4, 0.4, 3, 3, schedule_iterations=10)
    ours, theirs = annealed.step(LOGITS, context(3, progress)), NeighborMixing(0.4, 3).step(LOGITS, context(3))
    assert ours.mixed.any()
    for one, other in zip(ours, theirs, strict=True):
        assert (one is other is None) or torch.equal(one, other)


def test_the_step_has_the_rate_and_the_size_of_its_iteration() -> None:
    strategy = AnnealedNeighborMixing(rate_start=0.9, rate_end=0.1, schedule_iterations=10)
    for progress, rate, k in ((0, 0.9, 5), (5, 0.5, 4), (10, 0.1, 2), (99, 0.1, 2)):
        step = strategy.step(LOGITS, context(5, progress))
        smaller = NeighborMixing(rate, k).step(LOGITS, context(k))
        assert torch.equal(step.token, smaller.token)
        assert torch.equal(step.mixed, smaller.mixed)
        assert torch.equal(step.weights[:, :k], smaller.weights)
        assert torch.equal(step.ids[:, :k], smaller.ids)
        assert not step.weights[:, k:].any()
        assert bool((step.ids[:, k:] == step.ids[:, :1]).all())


def test_a_schedule_of_no_length_has_its_end_values_and_a_warm_up_rises() -> None:
    now = AnnealedNeighborMixing(schedule_iterations=0).schedule(torch.tensor(0))
    assert (float(now["rate"]), int(now["k"])) == (0.05, 2)
    warming = AnnealedNeighborMixing(0.0, 0.2, 2, 4, schedule_iterations=4)
    rates = [float(warming.schedule(torch.tensor(i))["rate"]) for i in range(5)]
    assert rates == sorted(rates)
    assert (rates[0], rates[-1], warming.width) == (0.0, 0.2, 4)


def test_rate_0_is_ordinary_sampling() -> None:
    step = AnnealedNeighborMixing(0.0, 0.0).step(LOGITS, context(5))
    assert not step.mixed.any()
    assert torch.equal(step.token, TokenSampling().step(LOGITS, context(5)).token)


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        ("rate_start", 1.1, "is not a probability"),
        ("rate_end", -0.1, "is not a probability"),
        ("k_start", 0, "leaves no anchor; choose k_start >= 1"),
        ("k_end", -1, "leaves no anchor; choose k_end >= 1"),
        ("schedule_iterations", -1, "is negative"),
        ("metric", "manhattan", "is not known"),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any, fault: str) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} {fault}.*\.$"):
        replace(AnnealedNeighborMixing(), **{setting: value})
