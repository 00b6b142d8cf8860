"""Groups in order, and precision that does not depend on the run's."""

import math

import pytest
import torch
from made_rollouts import experience, rollout, score

from ngrpo.rewards.verdict import Verdict
from ngrpo.rollout.types import StopReason

RIGHT, WRONG, UNSCORED = score(Verdict.CORRECT), score(Verdict.WRONG), score(Verdict.UNPARSABLE_REFERENCE)
MADE = experience(
    [rollout([1], [2] * n, stop=StopReason.LENGTH if n > 4 else StopReason.STOP) for n in range(1, 7)],
    [RIGHT, WRONG, RIGHT, UNSCORED, WRONG, RIGHT],
    group_size=3,
)


def test_groups_follow_each_other():
    assert MADE.group_size == 3
    assert MADE.correct.tolist() == [[True, False, True], [False, False, True]]
    assert str(MADE.rewards.tolist()) == str([[1.0, 0.0, 1.0], [math.nan, 0.0, 1.0]])
    assert MADE.truncated.tolist() == [False] * 4 + [True] * 2
    assert MADE.tokens == 21


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_rewards_are_float32_whatever_the_default(dtype: torch.dtype):
    """Half-precision training changes PyTorch's default dtype while it runs the training step."""
    torch.set_default_dtype(dtype)
    try:
        assert MADE.rewards.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_outcomes_are_equal_where_the_answers_are() -> None:
    answers = ["7", None, "7", "1/2", None, r"\frac{1}{2}"]
    scores = [score(Verdict.WRONG, answer) for answer in answers]
    found = experience([rollout([1], [2])] * 6, scores, 3).outcomes.tolist()
    assert [[a == b for b in found] for a in found] == [[a == b for b in answers] for a in answers]
