"""Figures of two groups of four, counted by hand."""

import math
from dataclasses import replace

import pytest
import torch
from fake_run import Module, batch, on_ranks, trainer
from made_rollouts import experience, rollout, score

from ngrpo.callbacks.rollout_metrics import RolloutMetrics
from ngrpo.types.experience import Experience
from ngrpo.types.rollouts import StopReason
from ngrpo.types.scores import Verdict

LENGTHS = [1, 2, 3, 4, 5, 6, 7, 4]
SOLVED = [
    score(Verdict.CORRECT, "7"),
    score(Verdict.CORRECT, "7.0"),
    score(Verdict.WRONG, "8"),
    score(Verdict.NO_ANSWER),
]
FAILED = [
    score(Verdict.WRONG, "8"),
    score(Verdict.WRONG, "8"),
    score(Verdict.TIMEOUT, "9"),
    score(Verdict.CRASHED, "8"),
]
UNSCORED = [score(Verdict.UNPARSABLE_REFERENCE, "8")] * 3 + [score(Verdict.NO_ANSWER)]


def made(scores: list, lengths: list[int] = LENGTHS) -> Experience:
    stops = [StopReason.LENGTH if length >= 6 else StopReason.STOP for length in lengths]
    rollouts = [rollout([1], range(length), stop=stop) for length, stop in zip(lengths, stops, strict=True)]
    return experience(rollouts, scores, group_size=4)


def logged(made: Experience) -> dict[str, float]:
    module = Module()
    RolloutMetrics().on_train_batch_start(trainer(), module, batch(0, made), 0)
    return module.logged


def test_figures_of_an_iteration():
    assert logged(made(SOLVED + FAILED)) == pytest.approx(
        {
            "train/reward": 2 / 8,
            "train/mean@1": 2 / 8,
            "train/pass@1": (1 / 2 + 0) / 2,
            "train/pass@2": (5 / 6 + 0) / 2,  # of the six pairs of the first group one has no right answer
            "train/pass@4": (1 + 0) / 2,
            "train/zero_signal": 1 / 2,
            "train/distinct_answers": (3 + 2) / 2,
            "rollout/length_mean": 4.0,
            "rollout/length_max": 7.0,
            "rollout/tokens_per_response": 4.0,
            "rollout/given_mean": 0.0,
            "rollout/branch_depth": 0.0,
            "rollout/truncated": 2 / 8,
            "rollout/tokens_per_s": 16.0,
            "time/generate_s": 2.0,
            "time/reward_s": 0.5,
            "reward/correctness": 2 / 8,
            "reward/correct": 2 / 8,
            "reward/wrong": 3 / 8,
            "reward/no_answer": 1 / 8,
            "reward/timeout": 1 / 8,
            "reward/crashed": 1 / 8,
            "reward/unparsable_reference": 0.0,
            "reward/unevaluated": 0.0,
            "reward/ungraded": 0.0,
            "reward/left_out": 0.0,
        }
    )


def test_given_tokens_are_not_counted_as_generated():
    given = made(SOLVED + FAILED)
    figures = logged(replace(given, rollouts=[replace(r, prefix_length=r.length - 1) for r in given.rollouts]))
    assert (figures["rollout/length_mean"], figures["rollout/length_max"]) == (1.0, 1.0)
    assert figures["rollout/tokens_per_s"] == 4.0


def test_unscored_samples_are_left_out_of_the_reward():
    figures = logged(made(SOLVED + UNSCORED))
    assert figures["train/reward"] == pytest.approx(2 / 5)
    assert figures["train/zero_signal"] == 1 / 2
    assert figures["reward/unparsable_reference"] == figures["reward/left_out"] == 3 / 8


def test_what_terms_leave_out_is_counted_once_a_response():
    terms = {"a": torch.tensor([math.nan, math.inf] + [0.0] * 6), "b": torch.tensor([math.nan] + [0.0] * 7)}
    figures = logged(replace(made(SOLVED + FAILED), terms=terms))
    assert figures["reward/left_out"] == 2 / 8


def test_terms_are_logged_and_added_to_the_reward():
    terms = {"overlong": torch.tensor([-0.5] * 4 + [0.0] * 4), "bonus": torch.tensor([math.nan] + [1.0] * 7)}
    figures = logged(replace(made(SOLVED + FAILED), terms=terms))
    assert figures["reward/overlong"] == -0.25
    assert figures["reward/bonus"] == 1.0
    assert figures["reward/correctness"] == figures["train/mean@1"] == 2 / 8
    assert figures["train/reward"] == pytest.approx((1 + 3 * -0.5 + 7 * 1.0) / 7)  # the first sample has no reward


def test_speed_counts_what_was_left_out():
    assert logged(replace(made(SOLVED + FAILED), discarded_tokens=8))["rollout/tokens_per_s"] == 20.0


def test_without_any_reward_there_is_no_reward_to_log():
    figures = logged(made([score(Verdict.UNPARSABLE_REFERENCE, "8")] * 8))
    assert "train/reward" not in figures
    assert figures["train/mean@1"] == 0.0
    assert figures["train/zero_signal"] == 1.0


def test_two_ranks_log_what_one_would():
    shares = [made(SOLVED, LENGTHS[:4]), made(UNSCORED, LENGTHS[4:])]

    def log(trainer, module, rank) -> None:
        RolloutMetrics().on_train_batch_start(trainer, module, batch(0, shares[rank]), 0)

    first, second = on_ranks(log, 2)
    assert first == second == pytest.approx(logged(made(SOLVED + UNSCORED)))
