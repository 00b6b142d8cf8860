"""Advantages that are too small to learn from are told once; what is excluded, or without any signal, is not."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from over_ranks import alone
from update_probe import ALGORITHMS

from ngrpo.algo.advantage import group_centred, group_standardised, raw, virtual_best
from ngrpo.algo.credit import Broadcast, Credit, DiscountedReturns, GeneralisedAdvantage
from ngrpo.algo.tree_credit import TreeCentred
from ngrpo.training.observed_advantages import AdvantageWarnings, largest


def test_the_largest_is_that_of_what_counts() -> None:
    assert largest([]) == 0.0
    assert largest([torch.zeros(1, 0), torch.full((1, 3), math.nan)]) == 0.0
    assert largest([torch.tensor([[0.5, -2.0]]), torch.tensor([[math.nan, 1.0]])]) == 2.0
    assert largest([torch.tensor([[-math.inf, 1.0]])]) == math.inf


@pytest.mark.parametrize(("size", "said"), [(0.0, 0), (1e-30, 1), (-2e-5, 1), (math.nan, 0), (0.01, 0), (1e30, 0)])
def test_only_tiny_ones_are_told(size: float, said: int, caplog: pytest.LogCaptureFixture) -> None:
    warn = AdvantageWarnings()
    for _ in range(2):
        warn([torch.tensor([[0.0, size]])], alone)
    assert len(caplog.messages) == said


@pytest.mark.parametrize(("size", "said"), [(0.02, 1), (-0.02, 1), (0.2, 0), (0.0, 0)])
def test_those_that_should_be_near_one_are_told_earlier(
    size: float, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    AdvantageWarnings(unit_spread=True)([torch.tensor([[0.0, size]])], alone)
    assert len(caplog.messages) == said


def test_advantages_of_unit_spread_are_near_one_until_eps_takes_over() -> None:
    """For all ways to be right or wrong in a group of 64, for rewards of 10 and of 1e-5; of 1e-8 nothing is left."""
    grpo = ALGORITHMS["grpo"]
    assert grpo.unit_spread
    for right in range(1, 64):
        rewards = torch.zeros(1, 64)
        rewards[0, :right] = 1.0
        for size in (10.0, 1e-5):
            assert float(grpo.advantage(rewards * size).abs().max()) > 0.5
        assert 0.0 < float(grpo.advantage(rewards * 1e-8).abs().max()) < 0.03


@pytest.mark.parametrize(
    ("advantage", "credit", "unit"),
    [
        (partial(group_standardised, eps=1e-4), Broadcast(), True),
        (group_centred, Broadcast(), False),
        (partial(virtual_best, best=1.0), Broadcast(), False),
        (raw, DiscountedReturns(), True),
        (raw, DiscountedReturns(whiten=False), False),
        (group_standardised, GeneralisedAdvantage(whiten=False), False),
        (group_standardised, TreeCentred(), True),
    ],
)
def test_which_algorithms_have_a_unit_spread(advantage: Callable[..., Any], credit: Credit, unit: bool) -> None:
    assert replace(ALGORITHMS["grpo"], advantage=advantage, credit=credit).unit_spread == unit
