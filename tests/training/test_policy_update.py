"""The policy's step: who takes part, what is logged and observed, and when it is not made."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_passes import made_passes
from over_ranks import alone, in_ranks
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from update_probe import ALGORITHMS

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.optim.loss_scale import DynamicScale, LossScale
from ngrpo.training.policy_update import PolicyUpdate
from ngrpo.training.samples import Sample
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.rollouts import Rollout

NAN = math.nan
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
"""Its schedule follows an optimiser of its own here."""
ALGORITHM = replace(ALGORITHMS["grpo"], kl_coef=0.0)


@pytest.fixture
def rollouts(make_engine, bound, requests, sampling) -> list[Rollout]:
    engine = make_engine()
    made: list[Rollout] = engine.generate(requests[:12], sampling, bound(engine, NeighborMixing(rate=0.3)))
    return made


@pytest.fixture
def samples(rollouts: list[Rollout]) -> list[Sample]:
    """Advantages 1 and -1 by turns; the second response is excluded."""
    signs = [NAN if i == 1 else (-1.0) ** i for i in range(len(rollouts))]
    return [Sample(r, torch.full((1, r.length), sign)) for r, sign in zip(rollouts, signs, strict=True)]


@pytest.fixture
def update(tiny_model_path: Path, sampling) -> Callable[..., PolicyUpdate]:
    def made(
        reduce: Any = alone, data_ranks: int = 1, model: ScoringModel | None = None, scale: float | None = None
    ) -> PolicyUpdate:
        model = model or ScoringModel(ModelSource(str(tiny_model_path)).load())
        return PolicyUpdate(
            model=model,
            settings=UpdateSettings(temperature=sampling.temperature, max_grad_norm=1e9),
            algorithm=ALGORITHM,
            exploration=NeighborMixing(),
            forward_passes=replace(made_passes(model, reduce), mixed_in=None if scale is None else torch.float16),
            loss_scale=LossScale() if scale is None else DynamicScale("policy", scale),
            data_ranks=data_ranks,
            schedule=LambdaLR(torch.optim.SGD(model.parameters(), lr=1.0), lambda step: 1 / (1 + step)),
            reduce_everywhere=reduce,
        )

    return made


def gradient(found: PolicyUpdate) -> Tensor:
    return torch.cat([p.grad.flatten() for p in found.model.parameters() if p.grad is not None])


def weights(found: PolicyUpdate) -> Tensor:
    return torch.cat([p.detach().flatten() for p in found.model.parameters()])


def test_excluded_responses_take_no_part(update, samples: list[Sample]):
    """Neither the gradient nor the counts of the loss know of them."""
    found, without = update(), update()
    metrics = found.accumulate(samples, Tensor.backward)
    others = without.accumulate([s for s in samples if not s.excluded], Tensor.backward)
    assert float(metrics["policy/sequences"]) == float(others["policy/sequences"]) == 11
    assert float(metrics["policy/loss"]) == pytest.approx(float(others["policy/loss"]), rel=1e-5)
    torch.testing.assert_close(gradient(found), gradient(without), rtol=1e-4, atol=1e-7)


def test_nothing_included_moves_nothing(update, samples: list[Sample]):
    found = update()
    optimizer = torch.optim.AdamW(found.model.parameters(), lr=0.1, weight_decay=0.1)
    found.step(samples, optimizer, Tensor.backward)
    before, steps = weights(found), found.schedule.last_epoch
    excluded = [replace(s, advantage=s.advantage * NAN) for s in samples]
    metrics = found.step(excluded, optimizer, Tensor.backward)
    assert float(metrics["policy/sequences"]) == float(metrics["policy/grad_norm"]) == 0
    assert float(metrics["policy/changed_share"]) == 0
    assert torch.equal(weights(found), before)
    assert found.schedule.last_epoch == steps == 1


def test_a_step_that_is_not_admitted_moves_nothing(update, samples: list[Sample]):
    found = update()
    optimizer = torch.optim.SGD(found.model.parameters(), lr=0.1)
    before, asked = weights(found), []

    def refuse(numbers: dict[str, Tensor]) -> bool:
        asked.append(sorted(numbers))
        return False

    metrics = found.step(samples, optimizer, Tensor.backward, refuse)
    assert asked == [["policy/grad_norm", "policy/loss"]]
    assert float(metrics["policy/sequences"]) == 0
    assert float(metrics["policy/grad_norm"]) > 0
    assert torch.equal(weights(found), before)
    assert found.schedule.last_epoch == 0
    assert all(p.grad is None for p in found.model.parameters())
    found.step(samples, optimizer, Tensor.backward)
    assert not torch.equal(weights(found), before)


def test_a_step_that_overflows_for_its_scale_moves_nothing_and_is_made_at_a_smaller_one(update, samples: list[Sample]):
    """It is asked of the loss alone whether the step is bad; the learning rate's schedule does not see it."""
    found, asked = update(scale=2.0**40), []
    optimizer = torch.optim.SGD(found.model.parameters(), lr=0.1)
    before = weights(found)

    def admit(numbers: dict[str, Tensor]) -> bool:
        asked.append(sorted(numbers))
        return all(bool(number.isfinite()) for number in numbers.values())

    steps = 0
    while torch.equal(weights(found), before):
        steps += 1
        metrics = found.step(samples, optimizer, Tensor.backward, admit)
        assert found.schedule.last_epoch == (metrics["policy/sequences"] > 0)
        assert all(p.grad is None for p in found.model.parameters())
        assert steps < 40
    assert steps > 5
    assert found.loss_scale.metrics() == {
        "policy/loss_scale": 2.0 ** (41 - steps), "policy/overflowed_steps": float(steps - 1)
    }  # fmt: skip
    assert asked == [["policy/loss"]] * (steps - 1) + [["policy/grad_norm", "policy/loss"]]
    found.begin(samples)
    assert found.loss_scale.metrics()["policy/overflowed_steps"] == 0


def test_the_scale_keeps_gradients_that_float16_would_lose(update, samples: list[Sample]):
    """The gradient that the optimiser gets is the loss's own, whatever the scale, and clipped as it is."""
    samples = [replace(sample, advantage=sample.advantage * 1e-7) for sample in samples]
    exact, kept = update(), {}
    exact.accumulate(samples, Tensor.backward)
    for scale in (1.0, 2.0**16):
        found = update(scale=scale)
        seen = torch.optim.SGD(found.model.parameters(), lr=0.0)
        seen.register_step_pre_hook(lambda *_, of=found, at=scale: kept.__setitem__(at, gradient(of)))
        norm = found.step(samples, seen, Tensor.backward)["policy/grad_norm"]
        torch.testing.assert_close(norm, kept[scale].norm(), rtol=1e-4, atol=0)
    whole = gradient(exact)
    assert (kept[2.0**16] - whole).norm() < 0.05 * whole.norm()
    assert (kept[1.0] - whole).norm() > 0.2 * whole.norm()


def test_ranks_normalise_by_the_tokens_of_all(update, samples: list[Sample]):
    whole = update()
    metrics = whole.accumulate(samples, Tensor.backward)

    def part(given: tuple[ScoringModel, list[Sample]], reduce) -> tuple[float, Tensor]:
        found = update(reduce, data_ranks=2, model=given[0])
        return float(found.accumulate(given[1], Tensor.backward)["policy/loss"]), gradient(found)

    # Loaded outside of the threads: while transformers loads, it replaces methods of its classes for all of them.
    one, two = in_ranks(part, [(update().model, samples[:4]), (update().model, samples[4:])])
    assert one[0] == two[0] == pytest.approx(float(metrics["policy/loss"]), rel=1e-5)
    # The ranks' gradients are averaged.
    torch.testing.assert_close((one[1] + two[1]) / 2, gradient(whole), rtol=1e-4, atol=1e-7)


def test_ratios_and_entropies_are_those_of_one_rollout_batch(update, samples: list[Sample]):
    found = update()
    tokens = sum(s.rollout.length for s in samples)
    for _ in range(2):
        assert found.begin(samples) == {}
        found.accumulate(samples, Tensor.backward)
        assert sum(map(len, found.ratios)) == tokens
        assert {key: len(e) for key, e in found.entropies.items()} == {s.rollout.key: s.rollout.length for s in samples}
    assert sum(int(ratios.isnan().sum()) for ratios in found.ratios) == samples[1].rollout.length


def test_a_minibatch_repeated_for_its_memory_is_observed_once(update, samples: list[Sample]):
    straight, found = update(), update()
    straight.forward_passes.budget.tokens = 40
    straight.step(samples, torch.optim.SGD(straight.model.parameters(), lr=0.0), lambda loss: None)
    calls = []

    def backward(loss: Tensor) -> None:
        calls.append(found.forward_passes.budget.tokens)
        if calls == [80, 80]:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    found.step(samples, torch.optim.SGD(found.model.parameters(), lr=0.0), backward)
    assert set(calls[2:]) == {40}
    assert [len(ratios) for ratios in found.ratios] == [len(ratios) for ratios in straight.ratios]
