"""Mixture statistics in a plane, where a cosine can be read off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from fake_run import Module, batch, on_ranks, trainer
from made_rollouts import experience, rollout, score
from torch import Tensor

from ngrpo.callbacks import exploration_monitor
from ngrpo.callbacks.exploration_monitor import (
    ExplorationMonitor,
    Served,
    anchor_cosines,
    exploration_values,
    learned_sizes,
    mixture_sizes,
)
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.types.experience import Experience
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout
from ngrpo.types.scores import Verdict

MIXING = NeighborMixing(k=2)
TABLE = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
MIXED = rollout([5, 6], [0, 1, 2], {2: {0: 0.5, 1: 0.25}, 4: {2: 0.9, 0: 0.1}})
PLAIN = rollout([5], [0, 1])
RIGHT, WRONG, UNSCORED = score(Verdict.CORRECT), score(Verdict.WRONG), score(Verdict.UNPARSABLE_REFERENCE)


def observe(run, module: Module, made: Experience, strategy: Exploration) -> None:
    """Shows an iteration to the monitor; the module has the strategy and the embedding table."""
    module.exploration = strategy
    module.weights = SimpleNamespace(embedding=lambda: TABLE, learned_exploration=dict)
    ExplorationMonitor().on_train_batch_start(run, module, batch(0, made), 0)


def logged(made: Experience, strategy: Exploration = MIXING) -> dict[str, float]:
    module = Module()
    observe(trainer(), module, made, strategy)
    return module.logged


def test_figures_of_an_iteration():
    """0.5 (1, 0) + 0.25 (0, 2) lies at 45 degrees to its anchor, the other mixture along it."""
    assert logged(experience([MIXED, PLAIN, MIXED, PLAIN], [RIGHT, WRONG, WRONG, RIGHT], 2)) == pytest.approx(
        {
            "exploration/gated_fraction": 4 / 10,
            "exploration/cosine_mean": (math.sqrt(0.5) + 1) / 2,
            "exploration/cosine_min": math.sqrt(0.5),
            "exploration/anchor_weight": 0.7,
            "exploration/mixture_size": 2.0,
            "exploration/reward_mixed": 0.5,
            "exploration/reward_plain": 0.5,
        }
    )


def test_a_given_prefix_counts_nowhere():
    """Of two responses of three tokens: the one's first mixture was given, and the only one of the other."""
    first, second = replace(MIXED, prefix_length=1), replace(MIXED, prefix_length=3, response_ids=torch.arange(4) % 3)
    figures = logged(experience([first, second], [RIGHT, WRONG], 2))
    assert figures["exploration/gated_fraction"] == pytest.approx(1 / 3)
    assert (figures["exploration/anchor_weight"], figures["exploration/cosine_min"]) == pytest.approx((0.9, 1.0))
    assert (figures["exploration/reward_mixed"], figures["exploration/reward_plain"]) == (1.0, 0.0)


def test_unscored_samples_are_left_out():
    figures = logged(experience([MIXED, MIXED, PLAIN, PLAIN], [RIGHT, UNSCORED, UNSCORED, UNSCORED], 2))
    assert figures["exploration/reward_mixed"] == 1.0
    assert "exploration/reward_plain" not in figures


def test_nothing_mixed_leaves_the_mixture_statistics_out():
    assert logged(experience([PLAIN, PLAIN], [RIGHT, WRONG], 2)) == {
        "exploration/gated_fraction": 0.0,
        "exploration/reward_plain": 0.5,
    }


def test_strategies_without_mixtures_log_nothing():
    assert logged(experience([PLAIN, PLAIN], [RIGHT, WRONG], 2), strategy=TokenSampling()) == {}


@dataclass(frozen=True)
class Fading(TokenSampling):
    """Has a schedule, and mixes nothing."""

    def schedule(self, progress):
        return {"rate": 1.0 / (1 + progress)}


def test_a_schedule_is_logged_as_the_rollouts_were_made_with_it():
    made = replace(experience([PLAIN, PLAIN], [RIGHT, WRONG], 2), finished=3)
    assert logged(made, Fading()) == {"exploration/rate": 0.25}


def test_learned_parameters_are_logged():
    """The root mean square of (3, 4, 0, 0) is 2.5; a single number is shown with its sign."""
    assert {
        name: float(size)
        for name, size in learned_sizes(
            {"gate": torch.tensor([3.0, 4.0, 0.0, 0.0]), "bias": torch.tensor([-0.5])}
        ).items()
    } == {"exploration/learned/gate": 2.5, "exploration/learned/bias": -0.5}


def test_ids_without_weight_are_not_counted():
    surplus = rollout([5, 6], [0, 1, 2], {2: {0: 0.5, 1: 0.5}, 4: {2: 1.0, 0: 0.0}})
    assert mixture_sizes(surplus).tolist() == [2, 1]


def test_mixtures_are_measured_some_rollouts_at_a_time(monkeypatch: pytest.MonkeyPatch):
    """By their tokens, or by the rows of their mixtures where these are more: of a wide one, 2 x 3 rows at 5 tokens."""
    wide = rollout([5, 6], [0, 1, 2], {2: {0: 0.5, 1: 0.3, 2: 0.2}, 4: {2: 0.8, 0: 0.1, 1: 0.1}}, width=3)
    measured, served = [], Served(TABLE, MIXING, {})

    def noting(rollouts: Sequence[Rollout], served: Served) -> Tensor:
        measured.append(len(rollouts))
        return anchor_cosines(rollouts, served)

    monkeypatch.setattr(exploration_monitor, "anchor_cosines", noting)
    for one, most, expected in ((MIXED, 8192, [4]), (MIXED, 10, [2, 2]), (wide, 10, [1] * 4), (wide, 12, [2, 2])):
        monkeypatch.setattr(exploration_monitor, "_MEASURED", most)
        made = exploration_values(experience([one] * 4, [RIGHT] * 4, 2), served)["exploration/cosine_mean"]
        assert torch.equal(made, anchor_cosines([one], served).repeat(4))
        assert measured == expected
        measured.clear()


def test_two_ranks_log_what_one_would():
    """One of them has nothing mixed."""
    shares = [experience([MIXED, MIXED], [RIGHT, WRONG], 2), experience([PLAIN, PLAIN], [RIGHT, RIGHT], 2)]
    first, second = on_ranks(lambda t, m, rank: observe(t, m, shares[rank], MIXING), 2)
    whole = experience([MIXED, MIXED, PLAIN, PLAIN], [RIGHT, WRONG, RIGHT, RIGHT], 2)
    assert first == second == pytest.approx(logged(whole))


@dataclass(frozen=True)
class Vectors(Exploration):
    """Records vectors and no ids."""

    dense = True

    def step(self, logits, ctx):
        raise NotImplementedError


def test_vectors_without_ids_are_compared_with_the_emitted_token():
    """(1, 1) lies at 45 degrees to the emitted token's row (0, 2)."""
    record = Record(torch.zeros(1, 0, dtype=torch.int32), torch.zeros(1, 0), vector=torch.ones(1, 2))
    dense = replace(PLAIN, mixture=Mixture(torch.tensor([2]), record))
    figures = logged(experience([dense, dense], [RIGHT, WRONG], 2), Vectors())
    assert figures["exploration/cosine_mean"] == pytest.approx(math.sqrt(0.5))
    assert figures["exploration/gated_fraction"] == 0.5
    assert "exploration/anchor_weight" not in figures


def test_learned_parameters_make_the_vector_that_was_fed():
    strategy = HybridReasoning()
    learned = strategy.initial_parameters(2) | {"lambda": torch.full((2,), -30.0)}  # a = 0: the latent alone
    record = Record(torch.zeros(1, 0, dtype=torch.int32), torch.zeros(1, 0), vector=torch.tensor([[1.0, 0.0]]))
    dense = replace(PLAIN, mixture=Mixture(torch.tensor([2]), record))
    cosine = anchor_cosines([dense], Served(TABLE, strategy, learned))
    assert float(cosine) == pytest.approx(0.0, abs=1e-3)
