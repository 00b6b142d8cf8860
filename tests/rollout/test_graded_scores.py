"""Rewards that count alike as right answers although they are far apart are told."""

import math

import pytest

from ngrpo.rewards.terms.results import scores_of
from ngrpo.rollout.graded_scores import warn_of_graded
from ngrpo.types.scores import Score, Verdict


def told(values: list[float]) -> bool:
    return warn_of_graded(scores_of(values, [""] * len(values)))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0, 0.0],
        [0.0, 1.0],
        [-1.0, 1.0],
        [0.0, 2.0],
        [0.1, 1.0, 1.1],
        [0.6, 1.0],
        [0.0, 1.0, math.nan],
        [3.0, 3.0],
    ],
)
def test_right_or_wrong_with_small_differences_is_no_scale(values: list[float], caplog: pytest.LogCaptureFixture):
    assert not told(values)
    assert caplog.records == []


@pytest.mark.parametrize("values", [[0.0, 30.0, 90.0], [1.0, 2.0, 3.0], [0.6, 1.5]])
def test_a_scale_is_told_with_what_to_return(values: list[float], caplog: pytest.LogCaptureFixture):
    assert told(values)
    (record,) = caplog.records
    low = min(value for value in values if value > 0.5)
    assert record.getMessage().startswith(f"rewards of {low:g} and of {max(values):g} both count as right answers")
    assert "Score(reward, correct, answer, status)" in record.getMessage()


def test_scores_that_say_what_is_right_are_not_told(caplog: pytest.LogCaptureFixture):
    values = (90.0, 60.0, 1.0)
    assert not warn_of_graded([Score(one, one > 50, None, Verdict.WRONG) for one in values])
    assert caplog.records == []
