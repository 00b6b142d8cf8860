import itertools
import json
import math
from typing import Any

import pytest
import torch
from places import ROOT
from torch import Tensor

from ngrpo.algo.advantage import group_standardised, leave_one_out
from ngrpo.algo.subsets import maxk, passk, subset_share

VECTORS = json.loads((ROOT / "tests/vectors2.json").read_text())
PASSK, MAXK = VECTORS["passk_advantage"], VECTORS["maxk_advantage"]
NAN = math.nan


def row(values: list[Any]) -> Tensor:
    return torch.tensor([[float(value) for value in values]], dtype=torch.float64)


def assert_equal(found: Tensor, expected: list[Any]) -> None:
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, row(expected), rtol=0, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", PASSK["inputs"]["groups"])
def test_golden_passk(name: str) -> None:
    assert_equal(passk(row(PASSK["inputs"]["groups"][name]), k=4, best=1.0), PASSK["outputs"][name])


@pytest.mark.parametrize(
    ("name", "rewards", "k"),
    [
        ("k1_8_with_3", PASSK["inputs"]["groups"]["8_with_3"], 1),
        ("k8_8_with_3", PASSK["inputs"]["groups"]["8_with_3"], 8),
        ("n3_k4", [1, 0, 0], 4),
        ("single_k1", [1], 1),
    ],
)
def test_golden_passk_at_other_k(name: str, rewards: list[float], k: int) -> None:
    assert_equal(passk(row(rewards), k=k, best=1.0), PASSK["outputs"][name])


def test_passk_of_one_is_standardisation_with_the_population_std() -> None:
    rewards = row([1, 0, 0, 1, 0])
    expected = group_standardised(rewards, eps=1e-12) * math.sqrt(5 / 4)
    torch.testing.assert_close(passk(rewards, k=1, best=1.0, eps=1e-12), expected)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_passk_by_all_subsets(k: int) -> None:
    """Mean and population std of the pass over the subsets, and the mean over those with a response."""
    for right in range(7):
        rewards = [1.0] * right + [0.0] * (6 - right)
        passes = {s: max(rewards[i] for i in s) for s in itertools.combinations(range(6), k)}
        values = torch.tensor(list(passes.values()), dtype=torch.float64)
        with_it = [sum(p for s, p in passes.items() if i in s) / math.comb(5, k - 1) for i in range(6)]
        expected = [(q - float(values.mean())) / (float(values.std(correction=0)) + 1e-6) for q in with_it]
        assert_equal(passk(row(rewards), k=k, best=1.0), expected)


@pytest.mark.parametrize("best", [3e38, 0.9, 1e-8, -0.7])
def test_maxk_is_exactly_zero_where_every_subset_holds_the_best(best: float) -> None:
    """Else rounding would make the group one with a signal, and that of its wrong answers positive."""
    for k, rewards in ((2, [best, best, best, best - abs(best)]), (3, [best] * 3 + [best - abs(best)] * 2)):
        assert maxk(torch.tensor([rewards], dtype=torch.float64), k).tolist() == [[0.0] * len(rewards)]


@pytest.mark.parametrize("advantage", [lambda r, k: passk(r, k, best=1.0), maxk])
def test_dead_groups_are_exactly_zero_in_float32(advantage: Any) -> None:
    for size in range(2, 30):
        for value in (0.0, 1.0, 0.9):
            assert not advantage(torch.full((1, size), value), 2).any()


def test_what_counts_as_right_is_a_matter_of_best() -> None:
    on, off = row([0.7, 0.2, 0.2, 0.7]), row([1.0, 0.0, 0.0, 1.0])
    assert torch.equal(passk(on, k=2, best=0.7), passk(off, k=2, best=1.0))
    with pytest.raises(ValueError, match="best"):
        passk(on, k=2)


def test_golden_maxk() -> None:
    rewards, k = row(MAXK["inputs"]["R"]), MAXK["inputs"]["k"]
    assert_equal(maxk(rewards, k), MAXK["outputs"]["A"])
    edge = MAXK["outputs"]["edge"]
    assert_equal(maxk(row([0.5] * 4), 3), edge["all_equal"])
    assert_equal(maxk(row([1, 0]), 2), edge["n_equals_k"])
    assert_equal(maxk(row([1, NAN, 0, 0.5]), 2), edge["unscored"])


@pytest.mark.parametrize(
    ("case", "expected"),
    list(
        zip(
            [(n, k, p) for n, k in ((3, 2), (4, 2), (5, 3)) for p in (0.1, 0.5)],
            MAXK["outputs"]["E[gradient], d pass@k / dp / k"],
            strict=True,
        )
    ),
)
def test_golden_expectation_of_maxk(case: tuple[int, int, float], expected: list[float]) -> None:
    """Over all outcomes of n answers that are right with p: the slope of pass@k by p, over k."""
    n, k, p = case
    found = 0.0
    for right in range(n + 1):
        outcome = row([1.0] * right + [0.0] * (n - right))
        slope = outcome / p - (1 - outcome) / (1 - p)  # of each log-probability, by p
        found += math.comb(n, right) * p**right * (1 - p) ** (n - right) * float((maxk(outcome, k) * slope).mean())
    assert [found, found] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_maxk_by_all_subsets(k: int) -> None:
    rewards = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).round(decimals=1)
    found = maxk(rewards, k)
    for group, advantages in zip(rewards.tolist(), found.tolist(), strict=True):
        best = {s: max(group[i] for i in s) for s in itertools.combinations(range(6), k)}
        for i, advantage in enumerate(advantages):
            with_it = [value for s, value in best.items() if i in s]
            without = [value for s, value in best.items() if i not in s]
            assert advantage == pytest.approx(sum(with_it) / len(with_it) - sum(without) / len(without), abs=1e-9)
    torch.testing.assert_close(found.sum(-1), torch.zeros(4, dtype=torch.float64))


def test_maxk_of_one_is_leave_one_out() -> None:
    rewards = row([0.3, NAN, -1.0, 0.8, 0.8])
    torch.testing.assert_close(maxk(rewards, 1), leave_one_out(rewards), equal_nan=True)


@pytest.mark.parametrize("right", range(1, 8))
def test_of_right_and_wrong_maxk_is_passk_up_to_a_factor(right: int) -> None:
    """A = (1 - k/n) (q - v) / sd."""
    n, k = 8, 3
    rewards = row([1] * right + [0] * (n - right))
    failed = math.comb(n - right, k) / math.comb(n, k)
    sd = math.sqrt(failed * (1 - failed))
    expected = (1 - k / n) * maxk(rewards, k) / (sd + 1e-6)
    torch.testing.assert_close(passk(rewards, k, best=1.0), expected, rtol=0, atol=1e-9)


def test_the_share_of_subsets() -> None:
    for whole in range(2, 9):
        for part in range(whole + 1):
            for size in range(whole + 1):
                found = subset_share(torch.tensor(part), torch.tensor(whole), size).item()
                assert found == pytest.approx(math.comb(part, size) / math.comb(whole, size), abs=1e-12)


def test_the_baselines_example_off_policy_is_the_papers_reward_where_nothing_has_moved() -> None:
    """Ratios of whole subsets are not made: the worked example says what they would be, to first order."""
    given, expected = VECTORS["maxk_offpolicy"]["inputs"], VECTORS["maxk_offpolicy"]["outputs"]["coefficient"]
    rewards, k, n = given["R"], given["k"], len(given["R"])

    def coefficients(change: list[float]) -> list[float]:
        subsets = list(itertools.combinations(range(n), k))
        weighed = {s: max(rewards[i] for i in s) * (1 + sum(change[i] for i in s)) / len(subsets) for s in subsets}
        return [sum(value for s, value in weighed.items() if i in s) for i in range(n)]

    assert coefficients(given["delta"]) == pytest.approx(expected, abs=1e-9)
    baseline = VECTORS["maxk_advantage"]["outputs"]["v"]
    of_advantages = [(a + v) * k / n for a, v in zip(maxk(row(rewards), k)[0].tolist(), baseline, strict=True)]
    assert coefficients([0.0] * n) == pytest.approx(of_advantages, abs=1e-9)
    (paper,) = (name for name in MAXK["outputs"] if name.startswith("paper_reward"))
    assert of_advantages == pytest.approx(MAXK["outputs"][paper], abs=1e-9)
