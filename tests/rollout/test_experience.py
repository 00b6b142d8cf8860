"""Groups in order, and precision that does not depend on the run's."""

import math
from dataclasses import replace

import pytest
import torch
from made_rollouts import experience, rollout, score

from ngrpo.types.experience import join_groups
from ngrpo.types.rollouts import StopReason
from ngrpo.types.scores import Verdict

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


def test_pass_rates_are_shares_of_the_scored():
    assert [(met.key, met.rate) for met in MADE.pass_rates] == [(0, 2 / 3), (1, 1 / 2)]
    unscored = replace(MADE, scores=[UNSCORED] * 3 + [WRONG] * 3)
    assert [(met.key, met.rate) for met in unscored.pass_rates] == [(1, 0.0)]


def test_rewards_are_the_sum_of_correctness_and_terms():
    terms = {"a": torch.tensor([1.0, 2, 3, 4, 5, 6]), "b": torch.tensor([0.5, 0, 0, 0, 0, math.nan])}
    shaped = replace(MADE, terms=terms)
    assert str(shaped.rewards.tolist()) == str([[2.5, 2.0, 4.0], [math.nan, 5.0, math.nan]])
    assert str(shaped.correctness.tolist()) == str([1.0, 0.0, 1.0, math.nan, 0.0, 1.0])
    assert shaped.correct.equal(MADE.correct)


def test_a_sum_beyond_float32_is_infinite_and_its_sample_masked():
    terms = {"a": torch.tensor([3e38, 0, 0, 0, 0, 0]).double(), "b": torch.tensor([2e38, 3e38, 0, 0, 0, 0]).double()}
    shaped = replace(MADE, terms=terms)
    assert shaped.infinite.tolist() == [True] + [False] * 5
    assert shaped.rewards[0].isnan().tolist() == [True, False, False]


def test_two_ways_to_one_sum_are_equal():
    """In float32 the last is 0.70000005."""
    ways = [(0.0, 0.0, 0.7), (0.7, 0.0, 0.0), (0.0, 0.1, 0.6)]
    scores = [replace(WRONG, reward=reward) for reward, _, _ in ways]
    terms = {name: torch.tensor([way[i] for way in ways], dtype=torch.float64) for i, name in ((1, "a"), (2, "b"))}
    made = experience([rollout([1], [2])] * 3, scores, group_size=3)
    assert len(set(replace(made, terms=terms).rewards[0].tolist())) == 1


def test_groups_are_whole_and_join_again():
    groups = MADE.groups()
    assert [(len(g.rollouts), g.prompts) for g in groups] == [(3, [prompt]) for prompt in MADE.prompts]
    assert join_groups(groups, [MADE]) == MADE
    swapped = join_groups([groups[1], groups[0], groups[1]], [MADE, MADE, MADE])
    assert [r.length for r in swapped.rollouts] == [4, 5, 6, 1, 2, 3, 4, 5, 6]
    assert [prompt.problem.key for prompt in swapped.prompts] == [1, 0, 1]
    assert swapped.texts == [f"text {i}" for i in (3, 4, 5, 0, 1, 2, 3, 4, 5)]
    assert swapped.scores == [*MADE.scores[3:], *MADE.scores]
    assert (swapped.generate_s, swapped.reward_s) == (6.0, 1.5)
    assert (swapped.tokens, swapped.discarded_tokens) == (63, 27)


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
