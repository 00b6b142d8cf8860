import math
from collections.abc import Iterator

import pytest

from ngrpo.errors import SettingError
from ngrpo.rewards.math import MathReward, Score
from ngrpo.rewards.verdict import Verdict


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    reward = MathReward(timeout_s=2.0, workers=1, correct=2.0, wrong=-1.0)
    yield reward
    reward.close()


def test_scores(reward: MathReward) -> None:
    responses = [
        r"so \boxed{0.5}",
        r"maybe \boxed{0.5}</think> It is \boxed{7}",
        r"maybe \boxed{0.5}</think> It is a half",
        r"\boxed{\binom{10^{9}}{5\cdot 10^{8}}}",
        r"\boxed{9^{9^{9^{9}}}}",
        r"so \boxed{0.5}",
    ]
    scores = reward(responses, [r"\frac{1}{2}"] * 5 + [""])
    assert scores[:5] == [
        Score(2.0, True, "0.5", Verdict.CORRECT),
        Score(-1.0, False, "7", Verdict.WRONG),
        Score(-1.0, False, None, Verdict.NO_ANSWER),
        Score(-1.0, False, r"\binom{10^{9}}{5\cdot 10^{8}}", Verdict.TIMEOUT),
        Score(-1.0, False, "9^{9^{9^{9}}}", Verdict.WRONG),
    ]
    assert math.isnan(scores[5].reward)
    assert scores[5].status is Verdict.UNPARSABLE_REFERENCE
    assert not scores[5].correct


def test_usable_references(reward: MathReward) -> None:
    references = ["142.0", "", r"\text{B}", "1/0", r"\frac{1}{2}"]
    assert reward.usable_references(references) == [True, False, True, False, True]


def test_lengths_must_agree(reward: MathReward) -> None:
    with pytest.raises(ValueError, match="longer"):
        reward([r"\boxed{1}"], [])


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, math.inf, math.nan])
def test_impossible_time_limit(timeout_s: float) -> None:
    with pytest.raises(SettingError, match=r"reward\.timeout_s"):
        MathReward(timeout_s=timeout_s)


def test_no_workers() -> None:
    with pytest.raises(SettingError, match=r"reward\.workers"):
        MathReward(workers=0)
