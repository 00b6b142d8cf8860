"""Rewards of which nothing is learned, or something else than they say, are named with their values."""

import math
from dataclasses import replace

import pytest
import torch
from made_responses import responses
from torch import Tensor

from ngrpo.rewards.terms.base import Responses, RewardTerms, WeightedTerm
from ngrpo.types.scores import Score, Verdict

FOUR = responses(["7", None, "8", "9"], keys=[4, 4, 9, 9], lengths=[2, 3, 5, 4])


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def constant(values: list[float]) -> WeightedTerm:
    def term(seen: Responses) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return WeightedTerm("mine", 1.0, term)


def rewarded(rewards: list[float]) -> Responses:
    return replace(FOUR, scores=[Score(reward, False, "7", Verdict.WRONG) for reward in rewards])


INFINITE = (
    " is infinite in float32 ({}), so that its optimiser step is skipped: let them be finite, and their sum below "
    "3.4e+38"
)


@pytest.mark.parametrize(
    ("rewards", "term", "shown"),
    [
        ([0.0, math.inf, 0.0, 0.0], [0.0] * 4, "reward=inf"),
        ([0.0, 1e39, 0.0, 0.0], [0.0] * 4, "reward=1e+39"),
        ([0.0, 1.0, 0.0, 0.0], [0.0, -math.inf, 0.0, 0.0], "reward=1, reward_terms.mine=-inf"),
        ([0.0, 3e38, 0.0, 0.0], [0.0, 2e38, 0.0, 0.0], "reward=3e+38, reward_terms.mine=2e+38"),
    ],
)
def test_an_infinite_reward_is_told_with_all_its_summands(
    rewards: list[float], term: list[float], shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    RewardTerms([constant(term)])(rewarded(rewards))
    assert told(caplog) == ["the reward on response 1, to problem 4: 'text 1'" + INFINITE.format(shown)]


def test_a_weight_that_makes_a_value_infinite_is_told(caplog: pytest.LogCaptureFixture) -> None:
    RewardTerms([replace(constant([0.0, 1e35, 0.0, 0.0]), weight=1e6)])(rewarded([0.0] * 4))
    assert told(caplog) == [
        "the reward on response 1, to problem 4: 'text 1'" + INFINITE.format("reward_terms.mine=1e+41")
    ]


@pytest.mark.parametrize(
    ("rewards", "differ", "large"),
    [
        ([0.0, 1.0, 1e8, 1e8 + 1], "1", "1e+08"),
        ([0.0, 1.0, 0.0, 1e-50], "1e-50", "1e-50"),
        ([0.0, 1.0, 1e8, 1e8 + 10], "10", "1e+08"),
    ],
)
def test_a_difference_that_float32_cannot_hold_is_told_once(
    rewards: list[float], differ: str, large: str, caplog: pytest.LogCaptureFixture
) -> None:
    terms = RewardTerms([])
    for _ in range(2):
        terms(rewarded(rewards))
    assert told(caplog) == [
        f"rewards of one group on response 2, to problem 9: 'text 2' differ by {differ} and are as large as {large}: "
        "float32, in which they are compared, rounds that difference; take off what they have in common, or scale them"
    ]


def test_a_term_that_vanishes_beside_the_reward_is_told(caplog: pytest.LogCaptureFixture) -> None:
    RewardTerms([constant([0.0, 1.0, 0.0, 0.0])])(rewarded([1e9] * 4))
    assert "differ by 1 and are as large as 1e+09" in caplog.text


@pytest.mark.parametrize(
    "rewards",
    [
        [0.1 + 0.2, 0.3, 0.7, 0.7],
        [1.0, 0.0, 1e8, 0.0],
        [1e30, 1.0, 1e-30, 0.0],
        [math.nan, 0.1, math.nan, math.nan],
        [0.9, 0.9, 0.9, 0.8999],
        [-3e38, 3e38, 1e-30, 2e-30],
    ],
)
def test_rounding_that_changes_nothing_is_not_told(rewards: list[float], caplog: pytest.LogCaptureFixture) -> None:
    RewardTerms([])(rewarded(rewards))
    assert all("nan" in line for line in told(caplog))
