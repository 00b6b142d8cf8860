"""A user's own reward says nothing of its size before it gives some; what the advantage cannot use ends the run."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from over_ranks import alone, in_ranks
from torch import Tensor
from update_probe import ALGORITHMS

from ngrpo.algo import advantage
from ngrpo.algo.best import with_best
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.subsets import passk
from ngrpo.errors import RunError
from ngrpo.training.observed_rewards import check_observed

NAN = torch.nan


def algorithm(of: Callable[..., Any], **settings: float) -> Algorithm:
    return with_best(replace(ALGORITHMS["grpo"], advantage=partial(of, **settings)), None)


def test_a_negative_reward_ends_a_run_that_divides_by_their_mean() -> None:
    """Of rewards of -1 and 1 half of them right would have an advantage of 0, and fewer too."""
    maxrl = algorithm(advantage.maxrl)
    check_observed(torch.tensor([[0.0, 1e-8, NAN], [1e6, 0.5, -0.0]]), maxrl, alone)
    check_observed(torch.full((2, 2), NAN), maxrl, alone)
    with pytest.raises(
        RunError, match=r"^reward and reward_terms gave -1, and algo\.advantage=maxrl needs .* 0 or above"
    ):
        check_observed(torch.tensor([[1.0, NAN], [-1.0, 1.0]]), maxrl, alone)


def test_a_reward_above_the_best_ends_a_run_that_compares_with_it() -> None:
    virtual = algorithm(advantage.virtual_best, best=0.1)
    check_observed(torch.tensor([0.1, 0.1 * (1 + 1e-6), -7.0]), virtual, alone)
    with pytest.raises(
        RunError, match=r"gave 2, and algo\.advantage=virtual_best takes algo\.advantage\.best=0\.1 for"
    ):
        check_observed(torch.tensor([0.1, 2.0]), virtual, alone)


@pytest.mark.parametrize(
    "chosen",
    [algorithm(advantage.group_standardised), algorithm(advantage.raw), algorithm(passk, best=1.0),
     algorithm(advantage.by_correctness, right=1.0, best=0.5)],
)  # fmt: skip
def test_others_take_any_reward(chosen: Algorithm) -> None:
    check_observed(torch.tensor([-1e6, 1e6, NAN]), chosen, alone)


def test_all_ranks_end_where_one_has_such_a_reward() -> None:
    def said(rewards: Tensor, reduce: Any) -> str:
        with pytest.raises(RunError) as caught:
            check_observed(rewards, algorithm(advantage.maxrl), reduce)
        assert caught.value.everywhere
        return str(caught.value)

    one, other = in_ranks(said, [torch.tensor([1.0, 0.0]), torch.tensor([NAN, -0.5])])
    assert one == other
    assert "gave -0.5," in one
