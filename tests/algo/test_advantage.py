import json
import math
import statistics

import pytest
import torch
from places import ROOT

from ngrpo.algo.advantage import (
    by_correctness,
    group_centred,
    group_standardised,
    is_dead,
    leave_one_out,
    maxrl,
    raw,
    virtual_best,
)

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())
GROUPS = VECTORS["grpo_advantage"]["inputs"]["groups"]
NAN = math.nan


@pytest.mark.parametrize("name", GROUPS)
def test_golden(name: str) -> None:
    rewards = torch.tensor([GROUPS[name]], dtype=torch.float64)
    expected = VECTORS["grpo_advantage"]["outputs"][name]
    found = {
        "ddof1_eps1e-6": group_standardised(rewards),
        "ddof1_eps1e-4_(TRL/HRPO)": group_standardised(rewards, eps=1e-4),
        "no_std_(Dr.GRPO)": group_centred(rewards),
    }
    for key, advantage in found.items():
        assert advantage.dtype == torch.float64
        assert advantage[0].tolist() == pytest.approx(expected[key], abs=1e-9)


@pytest.mark.parametrize("size", range(2, 40))
def test_equal_rewards_give_exactly_zero_in_float32(size: int) -> None:
    reward = VECTORS["grpo_advantage_float32_all_equal"]["inputs"]["rewards"][0]
    rewards = torch.full((1, size), reward)
    assert group_standardised(rewards).tolist() == [[0.0] * size]
    assert group_centred(rewards).tolist() == [[0.0] * size]
    assert is_dead(rewards).tolist() == [True]


def test_equals_a_loop_over_groups() -> None:
    rewards = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for group, advantage in zip(rewards.tolist(), group_standardised(rewards).tolist(), strict=True):
        mean, std = statistics.mean(group), statistics.stdev(group)
        assert advantage == pytest.approx([(r - mean) / (std + 1e-6) for r in group], abs=1e-9)


def test_unscored_samples_are_left_out() -> None:
    with_gaps = group_standardised(torch.tensor([[1.0, NAN, 0.0, 0.0, NAN]], dtype=torch.float64))
    without = group_standardised(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64))
    assert with_gaps[0, [0, 2, 3]].tolist() == pytest.approx(without[0].tolist())
    assert with_gaps[0, [1, 4]].isnan().all()


def test_groups_without_signal_are_dead() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0], [0.9, NAN, 0.9], [-1.0, NAN, -1.0], [NAN] * 3, [0.5, NAN, NAN]])
    assert is_dead(rewards).tolist() == [False, True, True, True, True]
    advantages = group_standardised(rewards)[1:]
    assert torch.equal(advantages.isnan(), rewards[1:].isnan())
    assert (advantages.nan_to_num(0.0) == 0.0).all()


def test_a_group_of_one_is_dead_only_if_unscored() -> None:
    rewards = torch.tensor([[1.0], [NAN]])
    assert is_dead(rewards).tolist() == [False, True]
    assert group_standardised(rewards).flatten().tolist() == pytest.approx([1.0, NAN], abs=1e-5, nan_ok=True)


def test_permuting_a_group_permutes_its_advantages() -> None:
    generator = torch.Generator().manual_seed(1)
    rewards = torch.randn(3, 8, dtype=torch.float64, generator=generator)
    order = torch.randperm(8, generator=generator)
    torch.testing.assert_close(group_standardised(rewards[:, order]), group_standardised(rewards)[:, order])


@pytest.mark.parametrize("key", ["rloo", "stht_rloo"])
def test_golden_leave_one_out(key: str) -> None:
    vector = VECTORS[key]
    rewards = torch.tensor([vector["inputs"]["rewards"]], dtype=torch.float64)
    assert leave_one_out(rewards)[0].tolist() == pytest.approx(vector["outputs"]["A"], abs=1e-9)


def test_leave_one_out_leaves_unscored_samples_out() -> None:
    advantages = leave_one_out(torch.tensor([[1.0, NAN, 0.0, 0.0], [1.0, NAN, NAN, NAN]]))
    assert advantages.flatten().tolist() == pytest.approx([1.0, NAN, -0.5, -0.5, 0.0, NAN, NAN, NAN], nan_ok=True)


@pytest.mark.parametrize("name", VECTORS["ngrpo_advantage"]["outputs"])
def test_golden_virtual_best(name: str) -> None:
    expected = VECTORS["ngrpo_advantage"]["outputs"][name]
    rewards = torch.tensor([expected["rewards"]], dtype=torch.float64)
    by_reward = {1.0: expected["A_correct"], 0.0: expected["A_wrong"]}
    found = virtual_best(rewards, best=1.0)[0]
    assert found.tolist() == pytest.approx([by_reward[r] for r in expected["rewards"]], abs=1e-9)
    assert float(found.sum()) == pytest.approx(expected["sum_A"], abs=1e-9)
    without = {1.0: expected["GRPO_A_correct"], 0.0: expected["GRPO_A_wrong"]}
    found = group_standardised(rewards)[0]
    assert found.tolist() == pytest.approx([without[r] for r in expected["rewards"]], abs=1e-9)


def test_virtual_best_of_a_group_of_one_and_of_all_best() -> None:
    assert virtual_best(torch.ones(1, 1), best=1.0).item() == pytest.approx(1.0)
    assert virtual_best(torch.full((1, 5), 0.9), best=0.9).tolist() == [[0.0] * 5]


@pytest.mark.parametrize(
    ("key", "settings"),
    [("PSR", {"right": 1.0}), ("NSR", {"wrong": -1.0}), ("W-REINFORCE", {"right": 0.1, "wrong": -1.0})],
)
def test_golden_by_correctness(key: str, settings: dict[str, float]) -> None:
    vector = VECTORS["psr_nsr"]
    expected = vector["outputs"][key]
    rewards = torch.tensor([vector["inputs"]["reward"]], dtype=torch.float64)
    advantages = by_correctness(rewards, best=1.0, **settings)[0]
    assert (~advantages.isnan()).tolist() == expected["kept_in_batch"]
    assert advantages.nan_to_num(0.0).tolist() == expected["A"]
    lengths = torch.tensor(vector["inputs"]["lengths"], dtype=torch.float64)
    kept = ~advantages.isnan()
    loss = -(advantages.nan_to_num(0.0) * lengths).sum() / lengths[kept].sum()
    assert float(loss) == pytest.approx(expected["token_mean_loss_at_ratio1_kept_only"])


def test_raw_is_the_reward() -> None:
    rewards = torch.tensor([[1.0, NAN, 0.25]])
    assert torch.equal(raw(rewards).nan_to_num(-1.0), rewards.nan_to_num(-1.0))


@pytest.mark.parametrize("function", [group_centred, group_standardised, leave_one_out])
def test_a_constant_added_to_a_group_changes_nothing(function) -> None:  # type: ignore[no-untyped-def]
    rewards = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(function(rewards + 3.5), function(rewards))


MAXRL = json.loads((ROOT / "tests/vectors2.json").read_text())["maxrl_advantage"]


@pytest.mark.parametrize("name", MAXRL["inputs"]["groups"])
def test_golden_maxrl(name: str) -> None:
    rewards, expected = (
        torch.tensor([[float(value) for value in values]], dtype=torch.float64)
        for values in (MAXRL["inputs"]["groups"][name], MAXRL["outputs"][name])
    )
    torch.testing.assert_close(maxrl(rewards), expected, rtol=0, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("example", MAXRL["outputs"]["n, p, E[gradient], (1-(1-p)^(n-1))/p"])
def test_maxrl_follows_a_truncated_likelihood(example: list[float]) -> None:
    """By enumeration: ``E[(1/n) sum A_i grad lp_i] = (1 - (1 - p)^(n - 1)) / p grad p``."""
    n, p, total = int(example[0]), example[1], 0.0
    for right in range(n + 1):
        outcome = torch.tensor([[1.0] * right + [0.0] * (n - right)], dtype=torch.float64)
        slope = outcome / p - (1 - outcome) / (1 - p)  # of each log-probability, by p
        total += math.comb(n, right) * p**right * (1 - p) ** (n - right) * float((maxrl(outcome) * slope).mean())
    assert [total, (1 - (1 - p) ** (n - 1)) / p] == pytest.approx(example[2:], abs=1e-9)


def test_maxrl_knows_no_scale_and_is_bounded() -> None:
    rewards = torch.tensor([[0.0, 0.0, 0.0, 1e-3]])
    torch.testing.assert_close(maxrl(rewards), maxrl(1000 * rewards))
    assert maxrl(rewards).tolist() == [[-1.0, -1.0, -1.0, 3.0]]
    for size in range(2, 30):
        assert not maxrl(torch.full((1, size), 0.9)).any()
