"""Latent-GRPO's credit against its worked example, and at its edges."""

import json
import math
from dataclasses import replace
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
from ngrpo.algo.first_token import FirstTokenOnce
from ngrpo.algo.groups import Groups
from ngrpo.algo.policy_loss import Algorithm

EXPECTED = json.loads((ROOT / "tests/vectors2.json").read_text())["latent_grpo"]["outputs"]
LATENT = Algorithm(
    advantage.group_standardised, ratio.token, unclipped, token_mean, kl.k3, FirstTokenOnce(), truncated="zero"
)
REWARDS, MEANS, CUT = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [-1.1, -0.5, -0.9, -0.7, -1.4, -0.6], [3]


def scored(rewards: list[float], means: list[float], cut: list[int], keys: list[int] | None = None) -> ScoredBatch:
    """Responses of two to four tokens, whose log-probs have these means."""
    lengths = torch.tensor([2 + i % 3 for i in range(len(rewards))])
    old = torch.cat([mean + torch.linspace(-0.2, 0.2, int(n)).double() for mean, n in zip(means, lengths, strict=True)])
    truncated = torch.tensor([i in cut for i in range(len(rewards))])
    return ScoredBatch(
        groups=Groups.of(keys or [7] * len(rewards)),
        rewards=torch.tensor(rewards, dtype=torch.float64),
        answers=torch.zeros(len(rewards)).long(),
        lengths=lengths,
        truncated=truncated,
        reduce=alone,
        old_log_prob=old,
        ref_log_prob=old - 0.5,
    )


def first_and_rest(algorithm: Algorithm, batch: ScoredBatch) -> tuple[list[float], list[float]]:
    parts = algorithm.assign(batch).advantages[0].split(batch.lengths.tolist())
    for part in parts:
        assert part[1:].isnan().all() or bool((part[1:] == part[1]).all())
    return [float(part[0]) for part in parts], [float(part[1]) for part in parts]


@pytest.mark.parametrize(
    ("truncated", "key"),
    [
        ("zero", "advantage, truncated zeroed after: first token / rest"),
        ("zero_unscored", "advantage, truncated excluded before: first token / rest"),
    ],
)
def test_golden(truncated: str, key: str) -> None:
    found = first_and_rest(replace(LATENT, truncated=truncated), scored(REWARDS, MEANS, CUT))
    for made, expected in zip(found, EXPECTED[key], strict=True):
        assert made == pytest.approx(expected, abs=1e-9)


def test_golden_without_a_right_response() -> None:
    found = first_and_rest(LATENT, scored([0.0] * 3, [-1.0, -2.0, -3.0], []))
    assert list(found) == EXPECTED["no right response: first token / rest"]


def test_all_right_and_a_group_of_one() -> None:
    assert first_and_rest(LATENT, scored([1.0] * 3, [-1.0, -2.0, -3.0], [])) == ([0.0] * 3, [0.0] * 3)
    (first,), (rest,) = first_and_rest(LATENT, scored([1.0], [-1.0], []))
    assert first == rest == pytest.approx(1 / (1 + 1e-6))


def test_a_right_response_at_the_limit_has_no_first_token() -> None:
    """The likeliest right one is truncated: the next one keeps its advantage, where it is dropped afterwards too."""
    for choice in ("zero", "zero_unscored", "drop"):
        first, rest = first_and_rest(replace(LATENT, truncated=choice), scored(REWARDS, MEANS, [2]))
        assert [i for i, a in enumerate(first) if a > 0] == [0]
        assert not rest[2] > 0.0


def test_groups_are_told_apart_and_unscored_responses_stay_out() -> None:
    keys, rewards = [1, 2, 1, 2, 1, 2], [1.0, 0.0, 0.0, 0.0, math.nan, 0.0]
    first, rest = first_and_rest(LATENT, scored(rewards, MEANS, [], keys))
    assert [i for i, a in enumerate(first) if a > 0] == [0]
    assert math.isnan(first[4])
    assert math.isnan(rest[4])
    assert first[1::2] == rest[1::2] == [0.0] * 3


def test_the_penalty_is_taken_off_every_token_that_learns() -> None:
    batch = scored(REWARDS, MEANS, [])
    plain = LATENT.assign(batch).advantages
    punished = replace(LATENT, kl_in="reward", kl_coef=0.1).assign(batch).advantages
    silent = plain == 0
    torch.testing.assert_close(punished[~silent], plain[~silent] - 0.05)
    assert not punished[silent].any()


def test_old_log_probs_are_needed() -> None:
    assert LATENT.needs_scoring_pass
    batch: Any = replace(scored(REWARDS, MEANS, []), old_log_prob=None)
    with pytest.raises(ValueError, match="old_log_prob, which is None"):
        LATENT.assign(batch)


def test_zeroed_responses_stay_in_the_denominators() -> None:
    counts: dict[str, Tensor] = {
        choice: ~replace(LATENT, truncated=choice).assign(scored(REWARDS, MEANS, CUT)).advantages.isnan()
        for choice in ("zero", "zero_unscored", "drop")
    }
    assert bool(counts["zero"].all())
    assert bool(counts["zero_unscored"].all())
    assert int((~counts["drop"]).sum()) == 2
