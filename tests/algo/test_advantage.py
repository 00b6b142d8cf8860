import json
import math
import statistics
from pathlib import Path

import pytest
import torch

from ngrpo.algo.advantage import group_centred, group_standardised, is_dead

VECTORS = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())
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
    assert with_gaps[0, [1, 4]].tolist() == [0.0, 0.0]


def test_groups_without_signal_are_dead() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0], [0.9, NAN, 0.9], [-1.0, NAN, -1.0], [NAN] * 3, [0.5, NAN, NAN]])
    assert is_dead(rewards).tolist() == [False, True, True, True, True]
    assert group_standardised(rewards)[1:].tolist() == [[0.0] * 3] * 4


def test_a_group_of_one_is_dead_only_if_unscored() -> None:
    rewards = torch.tensor([[1.0], [NAN]])
    assert is_dead(rewards).tolist() == [False, True]
    assert group_standardised(rewards).flatten().tolist() == pytest.approx([1.0, 0.0], abs=1e-5)


def test_permuting_a_group_permutes_its_advantages() -> None:
    generator = torch.Generator().manual_seed(1)
    rewards = torch.randn(3, 8, dtype=torch.float64, generator=generator)
    order = torch.randperm(8, generator=generator)
    torch.testing.assert_close(group_standardised(rewards[:, order]), group_standardised(rewards)[:, order])
