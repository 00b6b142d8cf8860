"""Mixing where it changes something, against N-GRPO and against the cosine of what is fed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from contexts import step_context
from torch.nn.functional import cosine_similarity

from ngrpo.errors import SettingError
from ngrpo.exploration.base import StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_selective import SelectiveNeighborMixing, inner_products
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary

ROWS, VOCABULARY = 400, 12
NEIGHBORS = torch.stack([torch.arange(VOCABULARY).roll(-shift) for shift in range(3)], dim=1).int()
LOGITS = 3 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))
TABLE = torch.randn(VOCABULARY, 16, generator=torch.Generator().manual_seed(1))


def context() -> StepContext:
    tables = {"neighbors": NEIGHBORS, "products": inner_products(TABLE, NEIGHBORS)}
    return step_context(ROWS, end_ids=(7,), tables=tables)


def test_a_bound_of_1_is_n_grpo_bit_for_bit() -> None:
    """Where a weight of 1 rounds the mixture to its anchor too."""
    logits = LOGITS.clone()
    logits[:20] *= 100
    ours = SelectiveNeighborMixing(0.4, 3, 1.0).step(logits, context())
    theirs = NeighborMixing(0.4, 3).step(logits, context())
    assert ours.mixed.any()
    for one, other in zip(ours, theirs, strict=True):
        assert (one is other is None) or torch.equal(one, other)


@pytest.mark.parametrize("bound", [0.99, 0.9, 0.8])
def test_what_is_mixed_is_what_differs(bound: float) -> None:
    strategy = SelectiveNeighborMixing(0.8, 3, bound)
    step, plain = strategy.step(LOGITS, context()), NeighborMixing(0.8, 3).step(LOGITS, context())
    fed = strategy.inputs(lambda ids: TABLE[ids], step, context(), {})
    cosine = cosine_similarity(fed, TABLE[LOGITS.argmax(-1)], dim=-1)
    assert torch.equal(step.mixed, plain.mixed & (cosine <= bound))
    assert 5 < int(step.mixed.sum()) < int(plain.mixed.sum())
    drawn = TokenSampling().step(LOGITS, context()).token
    assert torch.equal(step.token, torch.where(step.mixed, LOGITS.argmax(-1), drawn))


@pytest.mark.parametrize("change", [{"rate": 0.0}, {"max_cosine": -1.0}])
def test_nothing_mixed_is_ordinary_sampling(change: dict[str, Any]) -> None:
    step = replace(SelectiveNeighborMixing(), **change).step(LOGITS, context())
    assert not step.mixed.any()
    assert torch.equal(step.token, TokenSampling().step(LOGITS, context()).token)


def test_products_are_made_with_the_neighbour_table_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngrpo.exploration.neighbor_selective._BLOCK_ROWS", 5)
    tables = SelectiveNeighborMixing(k=2).prepare(TABLE, Vocabulary(VOCABULARY, frozenset(), {}))
    rows = TABLE[tables["neighbors"].long()]
    torch.testing.assert_close(tables["products"], torch.einsum("vid,vjd->vij", rows, rows))


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        ("rate", 1.5, "is not a probability"),
        ("k", 1, "leaves no neighbour; choose k >= 2"),
        ("max_cosine", 1.5, "is no cosine"),
        ("max_cosine", float("nan"), "is no cosine"),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any, fault: str) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} {fault}.*\.$"):
        replace(SelectiveNeighborMixing(), **{setting: value})
