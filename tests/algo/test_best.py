"""The best reward follows from the rewards in use, or is refused where it contradicts them."""

from functools import partial
from typing import Any

import pytest
import torch
from made_rollouts import score
from torch import Tensor

from ngrpo.algo import advantage, aggregate, clip, kl, ratio
from ngrpo.algo.best import sum_of_bounds, with_best
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.errors import SettingError
from ngrpo.rewards.math import MathReward
from ngrpo.rewards.terms.base import WeightedTerm, bounds_of
from ngrpo.rewards.terms.count_bonus import CountBonus
from ngrpo.rewards.terms.one_box import OneBox, stated_answer
from ngrpo.rewards.terms.overlong import OverlongPunishment
from ngrpo.rewards.terms.repetition import RepetitionPunishment
from ngrpo.types.scores import Verdict

W_REINFORCE = partial(advantage.by_correctness, right=0.1, wrong=-1.0)
PSR = partial(advantage.by_correctness, right=1.0)
FORMAT = WeightedTerm("format", 0.1, OneBox())


def advantages(function: Any, reward: object, terms: list[WeightedTerm], rewards: list[float], **best: float) -> Tensor:
    """Those of one group under an algorithm whose best is filled in."""
    made = partial(function, **best) if best else function
    algorithm = Algorithm(made, ratio.token, clip.clipped_surrogate, aggregate.token_mean, kl.k3)
    return with_best(algorithm, bounds_of(reward, terms)).advantage(torch.tensor([rewards]))[0]


@pytest.mark.parametrize(
    ("right", "wrong"), [(0.5, 0.0), (1.0, -1.0), (0.1, 0.0), (100.0, 10.0), (-1.0, -2.0), (0.7, 0.3)]
)
def test_right_answers_are_rewarded_on_any_scale(right: float, wrong: float) -> None:
    reward = MathReward(correct=right, wrong=wrong)
    rewards = [right, wrong, wrong]
    assert advantages(W_REINFORCE, reward, [], rewards).tolist() == pytest.approx([0.1, -1.0, -1.0])
    assert advantages(PSR, reward, [], rewards).isnan().tolist() == [False, True, True]
    assert advantages(advantage.virtual_best, reward, [], [right] * 4).tolist() == [0.0] * 4
    assert max(advantages(advantage.virtual_best, reward, [], [wrong] * 4).tolist()) < 0


@pytest.mark.parametrize("weight", [0.1, 0.3, 1.0, 1 / 3])
@pytest.mark.parametrize("right", [1.0, 0.7, 0.1])
def test_solved_groups_with_a_format_bonus_have_no_advantage(right: float, weight: float) -> None:
    """The sum is that of the rewards to the last bit, which are added up in float32."""
    term = WeightedTerm("format", weight, OneBox())
    total = torch.tensor([right]) + weight * torch.tensor([1.0])
    assert (
        advantages(advantage.virtual_best, MathReward(correct=right), [term], total.tolist() * 4).tolist() == [0.0] * 4
    )


def test_the_bounds_are_those_of_all_terms() -> None:
    terms = [
        FORMAT,
        WeightedTerm("overlong", 1.0, OverlongPunishment(8, 4)),
        WeightedTerm("repetition", -0.5, RepetitionPunishment(4)),
        WeightedTerm("count_bonus", 2.0, CountBonus()),
        WeightedTerm("stated", 10.0, partial(stated_answer)),
    ]
    found = bounds_of(MathReward(correct=90.0), terms)
    assert found == pytest.approx((-1.0, 90.0 + 0.1 + 0.5 + 2.0 + 10.0))
    assert sum_of_bounds((0.0, 1.0), []) == (0.0, 1.0)


def test_a_reward_that_does_not_tell_needs_a_setting() -> None:
    def own(texts: list[str], references: list[str]) -> list[Any]:
        return [score(Verdict.CORRECT)] * len(texts)

    for reward, terms in [(own, []), (MathReward(), [WeightedTerm("own", 1.0, lambda responses: torch.zeros(1))])]:
        with pytest.raises(SettingError, match=r"algo\.advantage\.best=null .* set algo\.advantage\.best to it\."):
            advantages(advantage.virtual_best, reward, terms, [1.0, 0.0])
        found = advantages(advantage.virtual_best, reward, terms, [3.0] * 3, best=3.0)
        assert found.tolist() == [0.0] * 3
        with pytest.raises(SettingError, match="is no reward"):
            advantages(advantage.virtual_best, reward, terms, [3.0], best=float("nan"))
    own.bounds = (0.0, 3.0)  # type: ignore[attr-defined]
    assert advantages(advantage.virtual_best, own, [], [3.0] * 3).tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("function", "terms", "best"),
    [
        (W_REINFORCE, [], 1.5),
        (W_REINFORCE, [], 0.0),
        (W_REINFORCE, [], float("nan")),
        (advantage.virtual_best, [FORMAT], 1.0),
        (advantage.virtual_best, [], 0.5),
        (advantage.virtual_best, [], float("inf")),
        (advantage.virtual_best, [], float("nan")),
    ],
)
def test_what_contradicts_the_rewards_is_refused(function: Any, terms: list[WeightedTerm], best: float) -> None:
    with pytest.raises(SettingError, match=rf"algo\.advantage\.best={best} .* set algo\.advantage\.best=null, which"):
        advantages(function, MathReward(), terms, [1.0, 0.0], best=best)


def test_other_advantages_are_left_alone() -> None:
    assert advantages(advantage.group_centred, object(), [], [1.0, 0.0]).tolist() == [0.5, -0.5]
