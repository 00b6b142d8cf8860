"""Credit by tree and shared tokens, against the specification's numbers and a slow reference."""

import json
import math
from dataclasses import replace

import pytest
import torch
from over_ranks import alone
from places import ROOT
from torch import Tensor

from ngrpo.algo.advantage import group_centred
from ngrpo.algo.credit import Broadcast, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.tree_credit import TreeCentred
from ngrpo.errors import SettingError
from ngrpo.types.paths import Path, distinct_tokens, shares

VECTORS = json.loads((ROOT / "tests/vectors2.json").read_text())
TREE, SHARED = VECTORS["tree_advantage"], VECTORS["tree_shared_prefix"]
REWARDS = torch.tensor(TREE["inputs"]["R"], dtype=torch.float64)


def paths(names: list[list[str]]) -> list[Path]:
    """Nodes are named by all that leads to them, as those of a tree are."""
    found = {tuple(path[:depth]) for path in names for depth in range(1, len(path) + 1)}
    numbers = {name: number for number, name in enumerate(sorted(found))}
    return [
        Path(tuple(numbers[tuple(path[: depth + 1])] for depth in range(len(path))), tuple(range(len(path))))
        for path in names
    ]


def batch(rewards: Tensor, trees: list[Path | None], lengths: list[int], keys: list[int] | None = None) -> ScoredBatch:
    size = len(rewards)
    return ScoredBatch(
        groups=Groups.of(keys or [0] * size),
        rewards=rewards,
        answers=torch.zeros(size, dtype=torch.int64),
        lengths=torch.tensor(lengths),
        truncated=torch.zeros(size, dtype=torch.bool),
        reduce=alone,
        paths=trees,
    )


def by_leaf(values: Tensor, lengths: list[int]) -> Tensor:
    """Each response's value, which all its tokens have; [1, N] -> [S]."""
    parts = torch.split(values[0], lengths)
    assert all(bool((part == part[0]).all()) or bool(part.isnan().all()) for part in parts)
    return torch.stack([part[0] for part in parts])


def credited(rewards: Tensor, trees: list[Path | None], weights: str, whiten: bool = False) -> Tensor:
    lengths = TREE["inputs"]["lengths"][: len(rewards)]
    made = TreeCentred(weights, whiten)(batch(rewards, trees, lengths), rewards, torch.zeros(sum(lengths)))
    return by_leaf(made.advantages, lengths)


@pytest.mark.parametrize("weights", ["average", "size"])
def test_vectors(weights: str) -> None:
    made = credited(REWARDS, paths(TREE["inputs"]["paths"]), weights)
    torch.testing.assert_close(made, torch.tensor(TREE["outputs"][weights], dtype=torch.float64), atol=1e-9, rtol=0)


def test_vectors_of_the_edges() -> None:
    outputs, names = TREE["outputs"], TREE["inputs"]["paths"]
    white = torch.tensor(outputs["whitened_over_tokens, per leaf"], dtype=torch.float64)
    torch.testing.assert_close(credited(REWARDS, paths(names), "average", True), white, atol=1e-9, rtol=0)
    dead = paths([["a", "1"], ["b", "2"]])
    assert credited(torch.ones(2), dead, "average", True).tolist() == outputs["two leaves of a dead tree"]
    assert credited(torch.ones(1), paths([["a", "1"]]), "average").tolist() == outputs["single leaf"]


def test_equal_rewards_are_exactly_zero() -> None:
    """0.1 three times has another mean than 0.1."""
    made = credited(torch.full((3,), 0.1), paths([["a", "1"], ["a", "2"], ["b", "3"]]), "size", True)
    assert made.tolist() == [0.0, 0.0, 0.0]


def test_an_unscored_response_is_no_leaf() -> None:
    names = TREE["inputs"]["paths"]
    rewards = REWARDS.clone()
    rewards[1] = math.nan
    made = credited(rewards, paths(names), "average")
    rest = [0, *range(2, 8)]
    without = credited(rewards[rest], paths([names[i] for i in rest]), "average")
    assert bool(made[1].isnan())
    torch.testing.assert_close(made[rest], without)


def test_without_paths_it_is_the_groups_own_mean() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.25, 1.0, 0.0])
    given = replace(batch(rewards, [], [2] * 6, keys=[0, 0, 0, 1, 1, 1]))
    made = TreeCentred(whiten=False)(given, rewards, torch.zeros(12))
    expected = Broadcast()(given, group_centred(rewards.view(2, 3)).flatten(), torch.zeros(12))
    torch.testing.assert_close(made.advantages, expected.advantages)


def test_other_weights_are_refused() -> None:
    with pytest.raises(SettingError, match=r"algo.credit.weights=depth is not known; choose average or size"):
        TreeCentred("depth")


def test_what_a_shared_token_learns_from() -> None:
    """By 1/k it is the mean over the leaves below, each token once; without, the sum."""
    names = SHARED["inputs"]["paths"]
    rewards = torch.tensor(SHARED["inputs"]["R"], dtype=torch.float64)
    centred = rewards - rewards.mean()
    trees = paths(names)
    found = shares(trees, [3] * 8, [True] * 8)
    once: dict[str, float] = {}
    each: dict[str, float] = {}
    for name, share, value in zip(names, found, centred.tolist(), strict=True):
        assert share is not None
        for index in range(3):
            node = "/".join(name[: index + 1])
            once[node] = once.get(node, 0.0) + float(share[index]) * value
            each[node] = each.get(node, 0.0) + value
    assert once == pytest.approx(SHARED["outputs"]["counted_once (weight 1/leaves): mean_of_A_below"], abs=1e-7)
    assert each == pytest.approx(SHARED["outputs"]["sum_of_A_below"], abs=1e-12)


def test_shares_leave_out_what_does_not_count() -> None:
    trees = paths([["a", "1"], ["a", "2"], ["a", "3"]])
    found = shares([*trees, None], [4, 5, 6, 7], [True, False, True, True])
    assert [None if one is None else one.tolist() for one in found] == [
        [0.5, 1.0, 1.0, 1.0], [0.5, *[1.0] * 4], [0.5, *[1.0] * 5], None
    ]  # fmt: skip
    assert distinct_tokens([*trees, None], [0] * 4, [4, 5, 6, 7]) == 1 + 3 + 4 + 5 + 7


@pytest.mark.parametrize(("nodes", "starts"), [((), ()), ((1, 2), (0,)), ((1, 2), (0, 0)), ((1, 2), (3, 1))])
def test_what_is_no_path_is_refused(nodes: tuple[int, ...], starts: tuple[int, ...]) -> None:
    with pytest.raises(SettingError, match=r"give each a later start"):
        Path(nodes, starts)
