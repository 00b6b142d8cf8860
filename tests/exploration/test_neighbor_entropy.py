"""N-GRPO-E against its worked example, and against N-GRPO where both are the same."""

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from contexts import step_context
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary

GOLDEN = json.loads(Path(__file__).with_name("adaptive_mixing.json").read_text())["adaptive_mixing_entropy"]
GIVEN, EXPECTED = GOLDEN["inputs"], GOLDEN["outputs"]
NATS = torch.tensor(GIVEN["entropy"], dtype=torch.float64)
ROWS, VOCABULARY = 400, 12
NEIGHBORS = torch.stack([torch.arange(VOCABULARY).roll(-shift) for shift in range(5)], dim=1).int()
LOGITS = 2 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))


def context(width: int = 5, padded: int = 0) -> StepContext:
    padding = torch.arange(VOCABULARY) >= VOCABULARY - padded
    return step_context(ROWS, end_ids=(7,), tables={"neighbors": NEIGHBORS[:, :width], "padding": padding})


def test_rates_and_sizes_are_those_of_the_example() -> None:
    names = {"rho_min": "rate_min", "rho_max": "rate_max", "H_lo": "entropy_low", "H_hi": "entropy_high"}
    settings = {names.get(name, name): value for name, value in GIVEN.items() if name not in ("entropy", "u")}
    strategy = EntropyNeighborMixing(**settings)
    assert strategy == EntropyNeighborMixing()
    rate, k = strategy.adapted(NATS)
    assert rate.tolist() == pytest.approx(EXPECTED["rho"], abs=1e-9)
    assert k.tolist() == EXPECTED["k"]
    assert (torch.tensor(GIVEN["u"], dtype=torch.float64) < rate).tolist() == EXPECTED["m"]
    assert float(rate.mean()) == pytest.approx(EXPECTED["mean rate of the six steps"], abs=1e-9)
    step = replace(strategy, entropy_low=0.6, entropy_high=0.6)
    assert step.adapted(NATS)[0].tolist() == EXPECTED["H_hi = H_lo = .6 is a step"]


@dataclass(frozen=True)
class OfSize(EntropyNeighborMixing):
    """Three ids of five, everywhere."""

    def adapted(self, nats: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones_like(nats), torch.full_like(nats, 3, dtype=torch.int64)


def test_surplus_ids_are_the_anchor_without_weight() -> None:
    """The scores of the example's weights are 2, 1 and 0 in the order of its ids."""
    expected = EXPECTED["weights, width 5, k = 3 (surplus slots 0, ids of the anchor)"]
    three = expected["ids"][:3]
    logits = torch.full((1, 6), -1.0, dtype=torch.float64)
    logits[0, three] = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    others = [number for number in range(6) if number not in three]
    table = torch.tensor([[*three, *others[:2]]] * 6)
    ctx = step_context(1, tables={"neighbors": table, "padding": torch.zeros(6, dtype=torch.bool)})
    step = OfSize().step(logits, ctx)
    assert step.ids.tolist() == [expected["ids"]]
    assert step.weights[0].tolist() == pytest.approx(expected["alpha"], abs=1e-9)


def test_equal_smallest_and_largest_values_are_n_grpo_bit_for_bit() -> None:
    entropy = EntropyNeighborMixing(0.4, 0.4, 3, 3)
    ours, theirs = entropy.step(LOGITS, context(3)), NeighborMixing(0.4, 3).step(LOGITS, context(3))
    assert ours.mixed.any()
    for one, other in zip(ours, theirs, strict=True):
        assert (one is other is None) or torch.equal(one, other)


def test_only_uncertain_steps_are_mixed_and_widely() -> None:
    strategy = EntropyNeighborMixing(rate_max=1.0, entropy_low=0.5, entropy_high=0.5)
    nats = torch.distributions.Categorical(logits=LOGITS).entropy()
    step = strategy.step(LOGITS, context())
    assert torch.equal(step.mixed, (nats >= 0.5) & (LOGITS.argmax(-1) != 7))
    assert set((step.weights[nats < 0.5] > 0).sum(-1).tolist()) == {2}
    assert set((step.weights[nats >= 0.5] > 0).sum(-1).tolist()) == {5}


@dataclass(frozen=True)
class Noting(EntropyNeighborMixing):
    """Remembers the entropies that its steps come to."""

    seen: list[Tensor] = field(default_factory=list)

    def adapted(self, nats: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append(nats)
        return super().adapted(nats)


def test_rows_without_a_chance_add_nothing_to_the_entropy() -> None:
    """A flat distribution over 12 rows, of which 4 are padding; then one of the others is impossible."""
    noting, flat = Noting(), torch.zeros(ROWS, VOCABULARY)
    noting.step(flat, context(padded=4))
    noting.step(flat.index_fill(1, torch.tensor([0]), -torch.inf), context(padded=4))
    for nats, rows in zip(noting.seen, (8, 7), strict=True):
        torch.testing.assert_close(nats, torch.full((ROWS,), math.log(rows)))


def test_padding_is_what_the_tokenizer_does_not_know() -> None:
    table = torch.randn(10, 16, generator=torch.Generator().manual_seed(0))
    tables = EntropyNeighborMixing(k_max=3).prepare(table, Vocabulary(8, frozenset(), {}))
    assert tables["padding"].tolist() == [False] * 8 + [True] * 2
    assert tables["neighbors"].shape == (10, 3)


def test_rate_0_is_ordinary_sampling() -> None:
    step = EntropyNeighborMixing(0.0, 0.0).step(LOGITS, context())
    assert not step.mixed.any()
    assert torch.equal(step.token, TokenSampling().step(LOGITS, context()).token)


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        ("rate_min", -0.1, "is not a probability"),
        ("rate_max", 1.5, "is not a probability"),
        ("rate_min", 0.5, r"is above exploration\.rate_max=0\.3; swap them"),
        ("k_min", 1, "leaves no neighbour; choose k_min >= 2"),
        ("k_min", 6, r"is above exploration\.k_max=5; swap them"),
        ("entropy_low", 2.0, r"is above exploration\.entropy_high=1\.5; swap them"),
        ("refresh_every", -1, "is negative"),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any, fault: str) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} {fault}.*\.$"):
        replace(EntropyNeighborMixing(), **{setting: value})
