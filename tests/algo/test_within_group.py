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
from ngrpo.algo.within_group import MoreOfHardPrompts, shortest, token_efficient
from ngrpo.errors import SettingError

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


def prompts(*means: float, size: int = 8) -> Tensor:
    """Groups of so many equal rewards."""
    return torch.tensor(means, dtype=torch.float64)[:, None].expand(-1, size)


def kept(chosen: MoreOfHardPrompts, rewards: Tensor) -> list[int]:
    lengths = torch.arange(rewards.shape[-1], 0, -1.0).expand_as(rewards)
    made = chosen(rewards.clone(), lengths, rewards)
    counts = (~made.isnan()).sum(-1)
    for row, count in zip(made, counts.tolist(), strict=True):  # the last ones are the shortest
        assert (~row.isnan()).tolist() == [False] * (rewards.shape[-1] - count) + [True] * count
    return counts.tolist()


def test_k_goes_by_the_quartile_of_the_mean_reward_among_all_so_far() -> None:
    chosen = MoreOfHardPrompts(sizes=(7, 5, 3, 2), warmup=12)
    rewards = prompts(0.0, 0.3, 0.6, 0.9)
    chosen.observe(rewards)
    assert kept(chosen, rewards) == [7] * 4  # warming up
    for _ in range(2):
        chosen.observe(rewards)
    # The quartiles of three of each are 0, 0.3 and 0.6.
    assert kept(chosen, rewards) == [7, 5, 3, 2]
    assert kept(chosen, prompts(-0.1, 0.1, 0.29, 0.31, 0.6, 0.61)) == [7, 5, 5, 3, 3, 2]
    assert kept(chosen, rewards) == [7, 5, 3, 2]  # selecting is no observing
    chosen.observe(prompts(*[1.0] * 40))
    assert kept(chosen, prompts(0.9, 1.0)) == [7, 7]  # of equal ones none is above


def test_a_mean_is_of_scored_responses_and_unscored_groups_count_nowhere() -> None:
    chosen = MoreOfHardPrompts(sizes=(4, 4, 3, 2), warmup=1)
    rewards = prompts(0.0, 1.0, math.nan, size=6).clone()
    rewards[1, 3:] = math.nan
    chosen.observe(rewards)
    assert chosen.seen.centroids == [(0.0, 1.0), (1.0, 1.0)]
    made = chosen(rewards, torch.ones(3, 6), rewards)
    assert (~made.isnan()).sum(-1).tolist() == [4, 3, 0]
    alike = prompts(0.5, size=10)
    assert MoreOfHardPrompts(warmup=0)(alike, torch.ones(1, 10), alike).isnan().sum() == 2


def test_the_quartile_is_of_the_rewards_without_a_kl_and_with_truncated_responses() -> None:
    """Most prompts have a mean of 0, and so have all three quartiles: a KL below 0 would make them easy ones."""
    chosen = MoreOfHardPrompts(sizes=(4, 4, 3, 2), warmup=0)
    rewards = torch.tensor([[0.0] * 5, [0.0] * 4 + [1.0]], dtype=torch.float64)
    chosen.observe(torch.cat((prompts(*[0.0] * 8, size=5), rewards)))
    old = torch.full((10,), -1.0, dtype=torch.float64)
    batch = replace(
        scored(rewards, [1] * 10),
        groups=Groups.of([0] * 5 + [1] * 5),
        truncated=torch.tensor([False] * 9 + [True]),
        old_log_prob=old,
        ref_log_prob=old + 0.5,
    )
    for truncated, counts in (("keep", [4, 2]), ("zero_unscored", [4, 3])):  # a truncated one has the advantage 0
        by = replace(GRPO, kl_in="reward", kl_coef=0.1, within_group=chosen, truncated=truncated)
        made = by.assign(batch).advantages[0].view(2, 5)
        assert (~made.isnan()).sum(-1).tolist() == counts


def test_the_state_is_the_algorithms_and_survives() -> None:
    first, second = (replace(GRPO, within_group=MoreOfHardPrompts(sizes=(3, 3, 2, 2), warmup=4)) for _ in range(2))
    rewards = prompts(0.1, 0.2, 0.6, 0.9, size=4)
    first.within_group.observe(rewards)  # type: ignore[union-attr]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.within_group.seen.centroids == first.within_group.seen.centroids  # type: ignore[union-attr]
    lengths = torch.arange(4.0).expand(4, 4)
    assert (~second.selected(rewards, lengths, rewards).isnan()).sum(-1).tolist() == [3, 3, 2, 2]
    assert replace(GRPO, within_group=shortest).state_dict() == {}


def test_by_reward_per_token_and_what_is_refused() -> None:
    rewards, lengths = row([1, 1, 0, 1]), row([9, 3, 1, 2])
    chosen = MoreOfHardPrompts(sizes=(2, 2, 2, 2), metric="token_efficient")
    assert torch.equal(chosen(rewards, lengths, rewards).isnan(), token_efficient(rewards, lengths, 2).isnan())
    with pytest.raises(SettingError, match=r"sizes=\[8, 6\] are 2 numbers; give one a quartile, four"):
        MoreOfHardPrompts(sizes=(8, 6))
    with pytest.raises(SettingError, match="metric=longest is not known; choose shortest or token_efficient"):
        MoreOfHardPrompts(metric="longest")
    with pytest.raises(SettingError, match="warmup=-1 is negative; 0 uses the quartiles at once"):
        MoreOfHardPrompts(warmup=-1)
