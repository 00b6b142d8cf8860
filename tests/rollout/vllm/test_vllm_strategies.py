"""Strategies that record more than ids and weights, inside vLLM: replayed, held to the torch engine, preempted."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from places import ROOT
from torch import Tensor
from vllm_checks import (
    KINDS,
    MIXING,
    NOISY_ERROR,
    UNSTOPPED,
    assert_same_rollouts,
    count_preemptions,
    heads,
    mixed_total,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.neighbor_selective import SelectiveNeighborMixing
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.types.rollouts import Rollout

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

REQUESTS = random_requests(6, 5, 60, samples=4)
SUMS: list[Exploration] = [
    SoftThinking(top_n=6, rate=0.5, cold_entropy=0.3, cold_steps=4),
    GumbelSoftThinking(end_token=None),
    GumbelSoftThinking(density="masked_mean", tau_g=0.5),
    LatentGumbel(top_k=5, end_token=None),
    EntropyNeighborMixing(rate_min=0.2, rate_max=0.8, end_token=None),
    SelectiveNeighborMixing(rate=0.9, max_cosine=0.999, end_token=None),
]
ANNEALED = AnnealedNeighborMixing(rate_start=0.8, rate_end=0.1, schedule_iterations=6, end_token=None)
VECTORS: list[Exploration] = [
    GaussianSoftTokens(end_token=None),
    GaussianSoftTokens(tau=0.0001),
    GaussianTopK(k=5, end_token=None),
    HybridReasoning(r_min=0.5, r_max=0.9, end_token=None),
]
SCHEDULE = json.loads((ROOT / "tests/exploration/adaptive_mixing.json").read_text())["adaptive_mixing_schedule"]
Trainers = Callable[[BoundExploration], ScoringModel]


@dataclass(frozen=True)
class Resting(Exploration):
    """Feeds the two most likely tokens, then as many tokens plainly as iterations are finished."""

    end_token: str | None = None

    width = 2
    stateful = True

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        probs, ids = logits.softmax(-1).topk(2)
        mixed = ctx.state == 0
        state = torch.where(mixed, ctx.progress, (ctx.state - 1).clamp(min=0)).int()
        return Step(ctx.sample(logits), mixed, ids, probs / probs.sum(-1, keepdim=True), state=state)


@pytest.fixture(scope="module")
def sums(demo) -> VllmEngine:
    return start_engine(demo, SUMS[0])


@pytest.fixture(scope="module")
def vectors(demo) -> VllmEngine:
    return start_engine(demo, VECTORS[0])


@pytest.fixture(scope="module")
def trainer_of(demo) -> Trainers:
    return lambda bound: ScoringModel(demo.load(), bound.parameters)


def assert_good(engine: VllmEngine, oracle, trainer_of: Trainers, bound: BoundExploration, requests=REQUESTS) -> None:
    """The trainer replays all; the torch engine agrees at first.

    Where vectors are fed back, the last bits by which two engines differ grow from step to step, unlike with tokens.
    """
    strategy, trainer = bound.strategy, trainer_of(bound)
    rollouts = engine.generate(requests, UNSTOPPED, bound)
    assert mixed_total(rollouts) > 20
    assert replay_error(rollouts, strategy, UNSTOPPED.temperature, trainer) < (NOISY_ERROR if strategy.noisy else 1e-4)
    assert replay_error(rollouts, strategy, UNSTOPPED.temperature, trainer, ignore=True) > 0.01
    assert_same_heads(rollouts, oracle.generate(requests, UNSTOPPED, bound))


def assert_same_heads(ours: list[Rollout], oracle: list[Rollout]) -> None:
    assert_same_rollouts(heads(ours, 5), heads(oracle, 5), atol=2e-3)


@pytest.mark.parametrize("strategy", SUMS)
def test_sums_of_rows(sums, oracle, bound_to_demo, trainer_of, strategy):
    assert_good(sums, oracle, trainer_of, bound_to_demo(strategy))


def test_rates_follow_the_finished_iterations(sums, oracle, bound_to_demo, trainer_of):
    totals = []
    for finished in (0, 3, 6):
        bound = bound_to_demo(ANNEALED).after(finished)
        assert_good(sums, oracle, trainer_of, bound)
        totals.append(mixed_total(sums.generate(REQUESTS, UNSTOPPED, bound)))
    assert totals[0] > 1.4 * totals[1] > 2.8 * totals[2]


def test_sizes_and_rates_are_those_of_the_worked_example(sums, bound_to_demo):
    given, expected = SCHEDULE["inputs"], SCHEDULE["outputs"]["iteration, rho, k"]
    strategy = AnnealedNeighborMixing(
        rate_start=given["rho_start"],
        rate_end=given["rho_end"],
        k_start=given["k_start"],
        k_end=given["k_end"],
        schedule_iterations=given["n"],
        end_token=None,
    )
    for finished, rate, k in expected[::2]:
        rollouts = sums.generate(REQUESTS, UNSTOPPED, bound_to_demo(strategy).after(int(finished)))
        sizes = torch.cat([(r.mixture.record.weights > 0).sum(-1) for r in rollouts])
        tokens = sum(rollout.length for rollout in rollouts)
        assert set(sizes.tolist()) == {int(k)}
        assert abs(len(sizes) / tokens - rate) < 5 * (rate * (1 - rate) / tokens) ** 0.5


def test_steps_read_the_hidden_state_of_their_rows(sums, oracle, bound_to_demo, trainer_of):
    assert_good(sums, oracle, trainer_of, bound_to_demo(KINDS["hidden"]))


@pytest.mark.parametrize("strategy", VECTORS)
def test_vectors(vectors, oracle, bound_to_demo, trainer_of, strategy):
    assert_good(vectors, oracle, trainer_of, bound_to_demo(strategy))


@pytest.mark.parametrize("strategy", [MIXING, TokenSampling(), SUMS[0]])
def test_an_engine_for_vectors_runs_the_other_strategies_too(vectors, oracle, bound_to_demo, strategy):
    bound = bound_to_demo(strategy)
    rollouts = vectors.generate(REQUESTS, UNSTOPPED, bound)
    assert_same_heads(rollouts, oracle.generate(REQUESTS, UNSTOPPED, bound))
    assert (mixed_total(rollouts) > 20) == strategy.mixes


def test_current_parameters_are_those_of_the_session(vectors, oracle, bound_to_demo, trainer_of):
    first = bound_to_demo(VECTORS[-1])
    trained = replace(first, parameters={name: value * 2 for name, value in first.parameters.items()})
    rollouts = vectors.generate(REQUESTS, UNSTOPPED, trained)
    assert replay_error(rollouts, first.strategy, UNSTOPPED.temperature, trainer_of(trained)) < 1e-4
    assert replay_error(rollouts, first.strategy, UNSTOPPED.temperature, trainer_of(first)) > 0.01


@pytest.mark.parametrize("chunk", [2048, 48])
def test_preempted_rollouts_are_recomputed_with_their_vectors(demo, oracle, bound_to_demo, trainer_of, chunk):
    engine = start_engine(demo, VECTORS[0], num_gpu_blocks_override=16, max_num_batched_tokens=chunk)
    preempted = count_preemptions(engine)
    for number, strategy in enumerate(VECTORS, 1):
        assert_good(engine, oracle, trainer_of, bound_to_demo(strategy), random_requests(12, 5, 60))
        assert len(preempted) >= 3 * number


def test_preempted_rows_keep_their_cold_count(demo, oracle, bound_to_demo, trainer_of):
    engine = start_engine(demo, SUMS[0], num_gpu_blocks_override=16)
    preempted = count_preemptions(engine)
    assert_good(engine, oracle, trainer_of, bound_to_demo(SUMS[0]), random_requests(12, 5, 60))
    assert len(preempted) >= 3


def test_preempted_rows_keep_time_and_state(demo, oracle, bound_to_demo, trainer_of):
    """What is recomputed comes from the record, and what is new from the iterations and the state of the row."""
    engine = start_engine(demo, ANNEALED, num_gpu_blocks_override=16)
    preempted = count_preemptions(engine)
    for number, strategy in enumerate([ANNEALED, Resting(end_token=None)], 1):
        totals = []
        for finished in (0, 3):
            bound = bound_to_demo(strategy).after(finished)
            assert_good(engine, oracle, trainer_of, bound, random_requests(12, 5, 60))
            totals.append(mixed_total(engine.generate(random_requests(12, 5, 60), UNSTOPPED, bound)))
        assert totals[0] > 1.4 * totals[1]
        assert len(preempted) >= 3 * number


def test_rows_that_do_not_explore_are_sampled_plainly(vectors, oracle, bound_to_demo):
    bound = bound_to_demo(VECTORS[0])
    half = [replace(r, explore=number % 2 == 0) for number, r in enumerate(REQUESTS)]
    rollouts = vectors.generate(half, UNSTOPPED, bound)
    assert_same_heads(rollouts, oracle.generate(half, UNSTOPPED, bound))
    assert mixed_total(rollouts[1::2]) == 0
    assert all(len(r.mixture.record.vector) == len(r.mixture.positions) for r in rollouts)


def test_an_engine_for_sums_refuses_vectors(sums, bound_to_demo):
    with pytest.raises(ValueError, match="started for sums of embedding rows"):
        sums.generate(REQUESTS, UNSTOPPED, bound_to_demo(VECTORS[2]))


def test_records_over_the_bound_are_refused(demo):
    engine = VllmEngine(demo, VECTORS[0], 160, 96, dense_record_gib=0.001)
    engine.check_load(VECTORS[2], 10_000, 96)
    engine.check_load(VECTORS[0], 10, 96)
    with pytest.raises(SettingError, match=r"dense_record_gib=0.001 is less than the 0\.1 GiB .* 2000 rollouts x 96"):
        engine.check_load(VECTORS[0], 2000, 96)


def test_a_load_is_checked_without_reading_the_model_again(demo, monkeypatch):
    engine, read = VllmEngine(demo, VECTORS[0], 160, 96), Counter[str]()
    config = ModelSource.config

    def counted(source: ModelSource) -> Any:
        read[source.path] += 1
        return config(source)

    monkeypatch.setattr(ModelSource, "config", counted)
    for _ in range(3):  # a server asks with each request
        engine.check_load(TokenSampling(), 10_000, 96)
    assert not read
    for _ in range(3):
        engine.check_load(VECTORS[0], 10, 96)
    assert read.total() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [*VECTORS, SUMS[0]])
def test_compiled_rollouts_are_those_of_the_torch_engine(demo, oracle, bound_to_demo, trainer_of, strategy):
    engine = start_engine(demo, strategy, eager=False)
    assert_good(engine, oracle, trainer_of, bound_to_demo(strategy))
    torch.compiler.reset()
