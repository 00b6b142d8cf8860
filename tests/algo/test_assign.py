"""From rewards to the advantages of tokens, for every advantage and credit."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from over_ranks import alone
from torch import Tensor

from ngrpo.algo import advantage, aggregate, clip, kl, ratio
from ngrpo.algo.consistency import ConsistencyBlend
from ngrpo.algo.credit import Broadcast, Credit, DiscountedReturns, GeneralisedAdvantage, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.policy_loss import Algorithm

NAN = math.nan
ADVANTAGES: dict[str, Callable[..., Tensor]] = {
    "group_centred": advantage.group_centred,
    "group_standardised": advantage.group_standardised,
    "leave_one_out": advantage.leave_one_out,
    "virtual_best": partial(advantage.virtual_best, best=1.0),
    "by_correctness": partial(advantage.by_correctness, right=0.1, wrong=-1.0, best=1.0),
    "raw": advantage.raw,
}
CREDITS: dict[str, Credit] = {
    "broadcast": Broadcast(),
    "returns": DiscountedReturns(gamma=0.9, whiten=False),
    "whitened": DiscountedReturns(),
    "gae": GeneralisedAdvantage(gamma=0.9, lam=0.8),
    "consistency": ConsistencyBlend(gamma=2.0, rho=1.0),
}
ALL = [(a, c) for a in ADVANTAGES for c in CREDITS]
KEYS = [4, 4, 4, 4, 9, 9, 9, 9, 2, 2, 2, 2]
REWARDS = [1.0, 0.0, NAN, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
LENGTHS = [3, 1, 2, 5, 4, 1, 1, 2, 3, 2, 1, 6]


def algorithm(chosen: str = "group_standardised", credit: str = "broadcast", **settings: Any) -> Algorithm:
    parts = {"ratio": ratio.token, "clip": clip.unclipped, "aggregate": aggregate.token_mean, "kl": kl.k3}
    return Algorithm(advantage=ADVANTAGES[chosen], credit=CREDITS[credit], **parts, **settings)


def scored(rows: list[int] | None = None, **changed: Any) -> ScoredBatch:
    """The responses ``rows`` of the batch, in that order."""
    rows = list(range(12)) if rows is None else rows
    generator = torch.Generator().manual_seed(0)
    old, ref, values = torch.randn(3, sum(LENGTHS), dtype=torch.float64, generator=generator)
    starts = [sum(LENGTHS[:row]) for row in range(12)]
    tokens = torch.cat([torch.arange(starts[row], starts[row] + LENGTHS[row]) for row in rows])
    made = ScoredBatch(
        groups=Groups.of([KEYS[row] for row in rows]),
        rewards=torch.tensor([REWARDS[row] for row in rows], dtype=torch.float64),
        answers=torch.tensor([(row * 7) % 3 for row in rows]),
        lengths=torch.tensor([LENGTHS[row] for row in rows]),
        truncated=torch.tensor([LENGTHS[row] > 4 for row in rows]),
        reduce=alone,
        old_log_prob=old[tokens],
        ref_log_prob=ref[tokens],
        values=values[tokens],
        bootstrap=torch.tensor([0.1 * row for row in rows], dtype=torch.float64),
    )
    return replace(made, **changed)


def by_response(advantages: Tensor, rows: list[int]) -> dict[int, list[list[float]]]:
    parts = advantages.split([LENGTHS[row] for row in rows], dim=-1)
    return {row: part.tolist() for row, part in zip(rows, parts, strict=True)}


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
@pytest.mark.parametrize(("chosen", "credit"), ALL)
def test_groups_are_those_of_the_prompts_whatever_the_order(chosen: str, credit: str, kl_in: str) -> None:
    settings = algorithm(chosen, credit, kl_in=kl_in, kl_coef=0.1)
    straight, shuffled = list(range(12)), [8, 0, 11, 4, 3, 6, 1, 10, 5, 2, 9, 7]
    expected = by_response(settings.assign(scored()).advantages, straight)
    found = by_response(settings.assign(scored(shuffled)).advantages, shuffled)
    for row in straight:
        for a, b in zip(found[row], expected[row], strict=True):
            assert a == pytest.approx(b, nan_ok=True)
    assert any(abs(value) > 0.01 for rows in expected.values() for value in rows[0])


@pytest.mark.parametrize(("chosen", "credit"), ALL)
def test_an_unscored_response_is_as_if_it_were_not_there(chosen: str, credit: str) -> None:
    settings = algorithm(chosen, credit)
    with_gap = by_response(settings.assign(scored()).advantages, list(range(12)))
    scored_rows = [row for row in range(12) if row != 2]
    without = by_response(settings.assign(scored(scored_rows)).advantages, scored_rows)
    assert all(math.isnan(value) for channel in with_gap[2] for value in channel)
    for row in scored_rows:
        for a, b in zip(with_gap[row], without[row], strict=True):
            assert a == pytest.approx(b)


def test_a_group_cut_by_position_would_differ() -> None:
    """So the order test can fail."""
    by_place = algorithm().assign(scored([0, 4, 8, 1], groups=Groups.of([0, 0, 1, 1]))).advantages
    by_prompt = algorithm().assign(scored([0, 4, 8, 1])).advantages
    assert not torch.allclose(by_place, by_prompt)


@pytest.mark.parametrize("chosen", ["group_centred", "leave_one_out", "raw"])
def test_kl_in_the_reward_of_a_response_is_summed_before_the_advantage(chosen: str) -> None:
    batch = scored()
    found = algorithm(chosen, kl_in="reward", kl_coef=0.1).assign(batch).advantages
    assert batch.old_log_prob is not None
    assert batch.ref_log_prob is not None
    penalty = [part.sum() for part in (0.1 * (batch.old_log_prob - batch.ref_log_prob)).split(LENGTHS)]
    rewards = torch.stack([reward - p for reward, p in zip(batch.rewards, penalty, strict=True)]).view(3, 4)
    expected = ADVANTAGES[chosen](rewards).flatten().repeat_interleave(batch.lengths)
    torch.testing.assert_close(found[0], expected, equal_nan=True)


def test_kl_in_the_reward_goes_to_the_tokens_where_credit_does() -> None:
    batch = scored()
    found = algorithm("group_centred", "returns", kl_in="reward", kl_coef=0.1).assign(batch).advantages[0]
    assert batch.old_log_prob is not None
    assert batch.ref_log_prob is not None
    penalty = 0.1 * (batch.old_log_prob - batch.ref_log_prob)
    outcome = advantage.group_centred(batch.rewards.view(3, 4)).flatten()
    expected = DiscountedReturns(0.9, False)(batch, outcome, penalty).advantages[0]
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_kl_in_the_reward_needs_both_log_probs() -> None:
    for missing in ("old_log_prob", "ref_log_prob"):
        with pytest.raises(ValueError, match="one is None"):
            algorithm(kl_in="reward", kl_coef=0.1).assign(scored(**{missing: None}))


@pytest.mark.parametrize(
    ("chosen", "credit", "dropped"),
    [
        ("group_standardised", "broadcast", [4, 5, 6, 7]),
        ("leave_one_out", "broadcast", [4, 5, 6, 7]),
        ("group_centred", "returns", [4, 5, 6, 7]),
        ("virtual_best", "broadcast", []),
        ("by_correctness", "broadcast", []),
        ("group_centred", "whitened", []),
        ("group_standardised", "consistency", []),
    ],
)
def test_zero_signal_groups_are_dropped_whole_and_on_request(chosen: str, credit: str, dropped: list[int]) -> None:
    """The second group is all wrong: some algorithms learn from it, and keep it."""
    kept = algorithm(chosen, credit).assign(scored()).advantages
    found = algorithm(chosen, credit, zero_signal="drop").assign(scored()).advantages
    for row, values in by_response(found, list(range(12))).items():
        if row in dropped:
            assert all(math.isnan(value) for channel in values for value in channel)
        else:
            assert values[0] == pytest.approx(by_response(kept, list(range(12)))[row][0], nan_ok=True)


def test_a_zero_among_others_is_not_dropped() -> None:
    batch = scored(rewards=torch.tensor([1.0, 0.5, 0.0, 0.5] * 3, dtype=torch.float64))
    assert not algorithm(zero_signal="drop").assign(batch).advantages.isnan().any()


def test_the_returns_are_passed_on() -> None:
    batch = scored()
    returns = algorithm("raw", "gae").assign(batch).returns
    assert returns is not None
    assert returns.shape == (sum(LENGTHS),)
    assert algorithm("raw").assign(batch).returns is None


@pytest.mark.parametrize(("chosen", "credit"), ALL)
def test_truncated_responses_are_dropped_after_all_statistics(chosen: str, credit: str) -> None:
    kept = by_response(algorithm(chosen, credit).assign(scored()).advantages, list(range(12)))
    found = algorithm(chosen, credit, truncated="drop").assign(scored())
    left = by_response(found.advantages, list(range(12)))
    for row in range(12):
        if LENGTHS[row] > 4:
            assert all(math.isnan(value) for channel in left[row] for value in channel)
        else:
            assert str(left[row]) == str(kept[row])
    assert found.returns is None or not found.returns[sum(LENGTHS[:3]) : sum(LENGTHS[:4])].isnan().any()
