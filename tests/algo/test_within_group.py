import json
import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from over_ranks import alone
from places import ROOT
from torch import Tensor

from ngrpo.algo import advantage, kl, ratio
from ngrpo.algo.aggregate import token_mean
from ngrpo.algo.clip import unclipped
from ngrpo.algo.credit import ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.within_group import shortest, token_efficient

VECTOR = json.loads((ROOT / "tests/vectors2.json").read_text())["gfpo"]
GRPO = Algorithm(advantage.group_standardised, ratio.token, unclipped, token_mean, kl.k3)


def row(values: list[Any]) -> Tensor:
    return torch.tensor([[float(value) for value in values]], dtype=torch.float64)


def scored(rewards: Tensor, lengths: list[int]) -> ScoredBatch:
    count = len(lengths)
    groups, none = Groups.of([0] * count), torch.zeros(count, dtype=torch.bool)
    return ScoredBatch(groups, rewards.flatten(), torch.zeros(count).long(), torch.tensor(lengths), none, alone)


@pytest.mark.parametrize(
    ("name", "function"), [("shortest", shortest), ("tokens_efficient (R / length)", token_efficient)]
)
def test_golden(name: str, function: Any) -> None:
    """Through the algorithm: the advantages of every token, NaN of responses that are not kept."""
    lengths = [int(length) for length in VECTOR["inputs"]["lengths"]]
    algorithm = replace(GRPO, within_group=partial(function, k=VECTOR["inputs"]["k"]))
    found = algorithm.assign(scored(row(VECTOR["inputs"]["R"]), lengths)).advantages
    assert found.shape == (1, sum(lengths))
    firsts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    expected = row(VECTOR["outputs"][name])
    torch.testing.assert_close(found[:, firsts], expected, rtol=0, atol=1e-9, equal_nan=True)
    counted = int((~found.isnan()).sum())
    assert counted == sum(length for length, a in zip(lengths, expected[0].tolist(), strict=True) if not math.isnan(a))


def test_golden_denominator_and_a_selection_without_a_signal() -> None:
    lengths = row(VECTOR["inputs"]["lengths"])
    kept = ~shortest(row(VECTOR["inputs"]["R"]), lengths, 4).isnan()
    (key,) = (name for name in VECTOR["outputs"] if name.startswith("denominator"))
    assert float(lengths[kept].sum()) == VECTOR["outputs"][key][0]
    alike = shortest(row([1, 1, 1, 0, 0]), row([1, 2, 3, 9, 9]), 3)
    found = advantage.group_standardised(alike)
    torch.testing.assert_close(found, row(VECTOR["outputs"]["kept_all_equal"]), equal_nan=True)


@pytest.mark.parametrize("function", [shortest, token_efficient])
def test_fewer_than_k_are_all_kept_and_equal_ones_in_their_order(function: Any) -> None:
    rewards = row([1, math.nan, 1])
    assert torch.equal(function(rewards, row([5, 1, 7]), 2).isnan(), rewards.isnan())
    assert function(row([1, 1, 1, 1]), row([4, 4, 4, 4]), 2).isnan().tolist() == [[False, False, True, True]]


def test_groups_are_told_apart() -> None:
    rewards = torch.eye(3)
    lengths = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0]])
    assert shortest(rewards, lengths, 1).isnan().logical_not().int().argmax(-1).tolist() == [2, 0, 1]
