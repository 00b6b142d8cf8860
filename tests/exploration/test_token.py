"""Truncation against slow references."""

import math
from typing import Any

import pytest
import torch
from contexts import step_context

from ngrpo.errors import SettingError
from ngrpo.exploration.token import TokenSampling, keep_top_k, keep_top_p
from ngrpo.exploration.vocabulary import Vocabulary

LOGITS = torch.randn(40, 12, generator=torch.Generator().manual_seed(0)) * 2


def kept(logits: torch.Tensor) -> list[set[int]]:
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in logits]


def slow_top_k(row: list[float], k: int) -> set[int]:
    threshold = sorted(row, reverse=True)[min(k, len(row)) - 1]
    return {i for i, z in enumerate(row) if z >= threshold and z > -math.inf}


def slow_top_p(row: list[float], p: float) -> set[int]:
    total = sum(math.exp(z) for z in row)
    chosen: set[int] = set()
    mass = 0.0
    for i in sorted(range(len(row)), key=lambda i: (-row[i], i)):
        if mass >= p:
            break
        chosen.add(i)
        mass += math.exp(row[i]) / total
    return chosen


@pytest.mark.parametrize("k", [1, 2, 5, 12, 50])
def test_top_k_keeps_the_right_set_unchanged(k: int) -> None:
    found = keep_top_k(LOGITS, k)
    assert kept(found) == [slow_top_k(row, k) for row in LOGITS.tolist()]
    assert torch.equal(found[found.isfinite()], LOGITS[found.isfinite()])


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_right_set_unchanged(p: float) -> None:
    found = keep_top_p(LOGITS, p)
    assert kept(found) == [slow_top_p(row, p) for row in LOGITS.tolist()]
    assert torch.equal(found[found.isfinite()], LOGITS[found.isfinite()])


def test_top_k_keeps_all_ties_of_the_kth() -> None:
    assert kept(keep_top_k(torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0]]), 2)) == [{1, 2, 3}]


def test_top_p_takes_the_smaller_ids_of_a_tie() -> None:
    assert kept(keep_top_p(torch.zeros(1, 8), 0.5)) == [{0, 1, 2, 3}]


def test_step_applies_top_p_to_the_survivors_of_top_k() -> None:
    """Of .4 .3 .2 .1, top_k=2 leaves .57 .43, of which top_p=.5 keeps the first; top_p alone keeps two."""
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log().repeat(2000, 1)
    ctx = step_context(2000)
    drawn = {
        strategy: set(strategy.step(logits, ctx).token.tolist())
        for strategy in (TokenSampling(2, 0.5), TokenSampling(0, 0.5), TokenSampling(2), TokenSampling())
    }
    assert list(drawn.values()) == [{1}, {1, 3}, {1, 3}, {0, 1, 2, 3}]
    assert not TokenSampling(2, 0.5).step(logits, ctx).mixed.any()


def test_truncates() -> None:
    assert not TokenSampling().truncates
    assert TokenSampling(top_k=5).truncates
    assert TokenSampling(top_p=0.95).truncates


def test_the_whole_vocabulary_is_not_recorded_at_every_position() -> None:
    """Of 151,936 ids it would be 600 KB a token; what is not recorded may be as wide as it likes."""
    embedding, words = torch.zeros(12, 4), Vocabulary(12, frozenset(), {})
    with pytest.raises(SettingError, match=r"^exploration\.top_k=12 keeps all 12 ids .*; set exploration\.top_k=0, "):
        TokenSampling(top_k=12, top_p=0.9).prepare(embedding, words)
    for fine in (TokenSampling(top_k=11), TokenSampling(top_k=12).unrecorded(), TokenSampling(top_p=0.9)):
        assert fine.prepare(embedding, words) == {}


@pytest.mark.parametrize(("setting", "value"), [("top_k", -1), ("top_p", 0.0), ("top_p", 1.01), ("top_p", math.nan)])
def test_settings_out_of_range_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        TokenSampling(**{setting: value})


def test_top_p_near_one_is_exact_over_a_large_vocabulary() -> None:
    """All but 1e-6 of the mass on one token, the rest spread evenly: a top-p of 1 - 1e-7 keeps nine tenths of them."""
    tail = 100_000
    probs = torch.cat([torch.tensor([1 - 1e-6], dtype=torch.float64), torch.full((tail,), 1e-6 / tail).double()])
    survivors = int(keep_top_p(probs.log().float()[None], 1 - 1e-7).isfinite().sum())
    assert abs(survivors - (1 + 0.9 * tail)) < 0.02 * tail
