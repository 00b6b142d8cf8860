import math
from collections.abc import Iterator

import pytest

from ngrpo.errors import SettingError
from ngrpo.rewards.math import MathReward
from ngrpo.types.scores import Score, Verdict


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
        rf"\boxed{{0.5{'0' * 10**6}}}",
        r"\boxed{" * 40_000 + "0.5" + "}" * 40_000,
        r"so \boxed{0.5}",
    ]
    scores = reward(responses, [r"\frac{1}{2}"] * 7 + [""])
    assert scores[:7] == [
        Score(2.0, True, "0.5", Verdict.CORRECT),
        Score(-1.0, False, "7", Verdict.WRONG),
        Score(-1.0, False, None, Verdict.NO_ANSWER),
        Score(-1.0, False, r"\binom{10^{9}}{5\cdot 10^{8}}", Verdict.TIMEOUT),
        Score(-1.0, False, "9^{9^{9^{9}}}", Verdict.WRONG),
        Score(-1.0, False, None, Verdict.NO_ANSWER),  # longer than an answer may be
        Score(2.0, True, "0.5", Verdict.CORRECT),
    ]
    assert math.isnan(scores[7].reward)
    assert scores[7].status is Verdict.UNPARSABLE_REFERENCE
    assert not scores[7].correct


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
