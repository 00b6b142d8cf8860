import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from over_ranks import alone, in_ranks
from places import ROOT

from ngrpo.algo.credit import Broadcast, DiscountedReturns, GeneralisedAdvantage, ScoredBatch, gae
from ngrpo.algo.groups import Groups
from ngrpo.errors import SettingError

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())
NAN = math.nan


def double(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def batch(lengths: Sequence[int], **settings: Any) -> ScoredBatch:
    """Responses to one prompt, unscored, of these lengths."""
    count = len(lengths)
    parts = {"rewards": double([NAN] * count), "answers": torch.zeros(count, dtype=torch.int64), "reduce": alone}
    truncated = torch.zeros(count, dtype=torch.bool)
    return ScoredBatch(Groups.of([0] * count), lengths=torch.tensor(lengths), truncated=truncated, **parts | settings)


def no_penalty(lengths: Sequence[int]) -> torch.Tensor:
    return torch.zeros(sum(lengths), dtype=torch.float64)


def test_broadcast_gives_each_token_its_responses_advantage() -> None:
    found = Broadcast()(batch([2, 1, 3]), double([1.0, NAN, -2.0]), no_penalty([2, 1, 3]))
    assert found.advantages.tolist()[0] == pytest.approx([1, 1, NAN, -2, -2, -2], nan_ok=True)
    assert found.returns is None


def test_golden_reinforce_pp() -> None:
    vector = VECTORS["reinforce_pp"]
    outcome = [row[-1] for row in vector["inputs"]["outcome"]]
    lengths = [len(row) for row in vector["inputs"]["k1"]]
    penalty = vector["inputs"]["beta"] * double([v for row in vector["inputs"]["k1"] for v in row])
    for whiten, key in ((False, "returns"), (True, "whitened")):
        found = DiscountedReturns(1.0, whiten)(batch(lengths), double(outcome), penalty).advantages[0]
        assert found.tolist() == pytest.approx([v for row in vector["outputs"][key] for v in row], abs=1e-9)


def test_golden_reinforce_pp_baseline() -> None:
    vector = VECTORS["reinforce_pp_baseline"]
    rewards, lengths = double(vector["inputs"]["rewards"]), vector["inputs"]["lengths"]
    found = DiscountedReturns()(batch(lengths), rewards - rewards.mean(), no_penalty(lengths)).advantages[0]
    assert found.tolist() == pytest.approx(vector["outputs"]["token_advantages"], abs=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99, 1.0])
def test_returns_are_those_of_a_loop_from_the_end(gamma: float) -> None:
    lengths = [1, 7, 2, 16, 5]
    generator = torch.Generator().manual_seed(0)
    outcome = torch.randn(5, dtype=torch.float64, generator=generator)
    penalty = torch.randn(sum(lengths), dtype=torch.float64, generator=generator)
    expected = []
    for row, reward in zip(penalty.split(lengths), outcome, strict=True):
        after, returns = 0.0, []
        for t in reversed(range(len(row))):
            after = float(reward) * (t == len(row) - 1) - float(row[t]) + gamma * after
            returns.append(after)
        expected += returns[::-1]
    found = DiscountedReturns(gamma, whiten=False)(batch(lengths), outcome, penalty).advantages[0]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_a_response_left_out_is_left_out_whole_and_out_of_the_statistics(gamma: float, whiten: bool) -> None:
    credit = DiscountedReturns(gamma, whiten)
    with_gap = credit(batch([2, 4, 3]), double([1.0, NAN, -0.5]), 0.1 * torch.arange(9.0).double()).advantages
    penalty = 0.1 * torch.cat((torch.arange(2.0), torch.arange(6.0, 9.0))).double()
    without = credit(batch([2, 3]), double([1.0, -0.5]), penalty).advantages
    assert with_gap[0, 2:6].isnan().all()
    torch.testing.assert_close(with_gap[:, [0, 1, 6, 7, 8]], without)


def test_whitening_is_over_the_tokens_of_all_ranks() -> None:
    lengths, outcome = [3, 1, 2, 5], double([1.0, 0.0, NAN, 0.5])
    whole = DiscountedReturns()(batch(lengths), outcome, no_penalty(lengths)).advantages

    def one_rank(rows: slice, reduce: Any) -> torch.Tensor:
        own = lengths[rows]
        return DiscountedReturns()(batch(own, reduce=reduce), outcome[rows], no_penalty(own)).advantages

    parts = in_ranks(one_rank, [slice(0, 1), slice(1, 4)])
    torch.testing.assert_close(torch.cat(parts, dim=-1), whole, equal_nan=True)
    assert (parts[0] != 0).all()  # alone, the first rank's equal tokens would be whitened to 0


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.99, 0.9)])
def test_golden_gae(gamma: float, lam: float) -> None:
    vector = VECTORS["gae"]
    expected = vector["outputs"][f"gamma{gamma}_lam{lam}"]
    rewards, values = double(vector["inputs"]["rewards"]), double(vector["inputs"]["values"])
    advantages, returns = gae(rewards, values, torch.tensor([3]), gamma, lam)
    assert advantages.tolist() == pytest.approx(expected["adv"], abs=1e-9)
    assert returns.tolist() == pytest.approx(expected["ret"], abs=1e-9)
    credit = GeneralisedAdvantage(gamma, lam, whiten=False)
    found = credit(batch([3], values=values), rewards[-1:], no_penalty([3]))
    torch.testing.assert_close(found.advantages[0], advantages)


def test_gae_is_that_of_a_loop_and_ends_in_the_bootstrap_value() -> None:
    lengths, gamma, lam = [3, 1, 6], 0.97, 0.9
    generator = torch.Generator().manual_seed(1)
    rewards, values = torch.randn(2, 10, dtype=torch.float64, generator=generator)
    bootstrap = double([0.0, 0.7, -0.4])
    expected = []
    for r, v, end in zip(rewards.split(lengths), values.split(lengths), bootstrap.tolist(), strict=True):
        following, after, out = end, 0.0, []
        for t in reversed(range(len(r))):
            after = float(r[t]) + gamma * following - float(v[t]) + gamma * lam * after
            following = float(v[t])
            out.append(after)
        expected += out[::-1]
    advantages, returns = gae(rewards, values, torch.tensor(lengths), gamma, lam, bootstrap)
    assert advantages.tolist() == pytest.approx(expected)
    torch.testing.assert_close(returns, advantages + values)


def test_gae_whitens_the_advantages_and_not_the_returns() -> None:
    lengths = [2, 3]
    values = torch.rand(5, generator=torch.Generator().manual_seed(2)).double()
    plain, white = (
        GeneralisedAdvantage(whiten=whiten)(batch(lengths, values=values), double([1.0, 0.0]), no_penalty(lengths))
        for whiten in (False, True)
    )
    assert plain.returns is not None
    assert white.returns is not None
    torch.testing.assert_close(plain.returns, white.returns)
    torch.testing.assert_close(plain.returns, double([1.0, 1.0, 0.0, 0.0, 0.0]))
    assert white.advantages.mean().item() == pytest.approx(0.0, abs=1e-9)
    assert white.advantages.std().item() == pytest.approx(1.0, abs=1e-6)


def test_gae_needs_values() -> None:
    with pytest.raises(ValueError, match="need values"):
        GeneralisedAdvantage()(batch([2]), double([1.0]), no_penalty([2]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"gamma": 1.1}, "algo.credit.gamma=1.1 "), ({"lam": -0.1}, "algo.credit.lam=-0.1 ")],
)
def test_bad_discounts_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        GeneralisedAdvantage(**settings)
