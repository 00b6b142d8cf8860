import math

import pytest

from ngrpo.errors import SettingError
from ngrpo.rewards.countdown import CountdownReward
from ngrpo.types.scores import Verdict

REWARD = CountdownReward()


def verdict(response: str, target: str = "24", numbers: list[int] | None = None) -> Verdict:
    (score,) = REWARD([response], [target], [numbers or [3, 3, 8, 8]])
    assert score.correct == (score.status is Verdict.CORRECT)
    assert score.reward == float(score.correct)
    return score.status


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (r"8/(3-8/3)", Verdict.CORRECT),
        (r"8 \div \left(3 - 8 \div 3\right)", Verdict.CORRECT),
        ("24", Verdict.WRONG),
        ("3*8", Verdict.WRONG),  # not all numbers
        ("3*8+8-8+3-3", Verdict.WRONG),  # a number too often
        ("3+3+8+8", Verdict.WRONG),  # another value
        ("8/(3-3)*8", Verdict.WRONG),  # by zero
        ("8*3+", Verdict.WRONG),
    ],
)
def test_exactly_the_numbers_have_to_reach_the_target(box: str, expected: Verdict) -> None:
    assert verdict(f"some tries.\n</think>\n\\boxed{{{box}}}") is expected


def test_every_solution_is_right() -> None:
    for box in ("(1+5)*4", "4*(5+1)", "4*5+4*1"):
        expected = Verdict.WRONG if box.count("4") > 1 else Verdict.CORRECT
        assert verdict(f"</think>\\boxed{{{box}}}", numbers=[1, 4, 5]) is expected


@pytest.mark.parametrize("response", ["", "3*8", "<think>\\boxed{8/(3-8/3)}", "\\boxed{8/(3-8/3)"])
def test_no_closed_box_is_no_answer(response: str) -> None:
    assert verdict(response) is Verdict.NO_ANSWER


def test_puzzles_without_numbers_or_target_are_not_scored() -> None:
    scores = REWARD(["</think>\\boxed{1}"] * 2, ["1", "one"], [None, [1]])
    assert [score.status for score in scores] == [Verdict.UNPARSABLE_REFERENCE] * 2
    assert all(math.isnan(score.reward) for score in scores)


def test_data_without_numbers_is_refused() -> None:
    with pytest.raises(SettingError, match="reward=countdown needs the numbers of each puzzle"):
        REWARD(["a"], ["1"])


@pytest.mark.parametrize(("correct", "wrong"), [(0.0, 0.0), (0.0, 1.0), (math.inf, 0.0), (1.0, math.nan)])
def test_rewards_have_to_prefer_right_answers(correct: float, wrong: float) -> None:
    with pytest.raises(SettingError, match=r"reward\.correct"):
        CountdownReward(correct=correct, wrong=wrong)
