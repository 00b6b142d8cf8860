import json
from collections.abc import Callable
from functools import partial

import pytest
import torch
from places import ROOT

from ngrpo.algo.aggregate import BatchTotals, const_norm, seq_mean_token_mean, seq_mean_token_sum, token_mean

EFFECT = json.loads((ROOT / "tests/vectors.json").read_text())["token_mean_microbatch_effect"]
Aggregate = Callable[[torch.Tensor, BatchTotals], torch.Tensor]
ALL = [token_mean, seq_mean_token_mean, seq_mean_token_sum, partial(const_norm, length=10)]
LENGTHS = torch.tensor(EFFECT["inputs"]["lengths"], dtype=torch.float64)
# Every token of a sequence carries the sequence's mean loss, so a sequence sums to mean * length.
SUMS = torch.tensor(EFFECT["inputs"]["seq_mean_loss"], dtype=torch.float64) * LENGTHS
TOTALS = BatchTotals(sequences=4, tokens=20)


def aggregate(weights: Aggregate, rows: slice = slice(None)) -> float:
    return (weights(LENGTHS[rows], TOTALS) * SUMS[rows]).sum().item()


def test_golden_token_mean_is_global_however_the_batch_is_split() -> None:
    expected = EFFECT["outputs"]["global_token_mean"]
    halves = aggregate(token_mean, slice(0, 2)) + aggregate(token_mean, slice(2, 4))
    assert aggregate(token_mean) == pytest.approx(expected, abs=1e-9)
    assert halves == pytest.approx(expected, abs=1e-9)


def test_golden_sequence_mean() -> None:
    assert aggregate(seq_mean_token_mean) == pytest.approx(EFFECT["outputs"]["sequence_mean"], abs=1e-9)


def test_sums_per_sequence() -> None:
    assert aggregate(seq_mean_token_sum) == pytest.approx(SUMS.sum().item() / 4)
    assert aggregate(partial(const_norm, length=10)) == pytest.approx(SUMS.sum().item() / 40)


@pytest.mark.parametrize("weights", ALL)
def test_keeps_the_dtype_and_accepts_counts(weights: Aggregate) -> None:
    assert weights(LENGTHS, TOTALS).dtype == torch.float64
    torch.testing.assert_close(weights(LENGTHS.long(), TOTALS), weights(LENGTHS, TOTALS).float())


@pytest.mark.parametrize("weights", ALL)
def test_empty_sequences_and_empty_batches_have_finite_weights(weights: Aggregate) -> None:
    found = weights(torch.tensor([0, 0]), BatchTotals(sequences=0, tokens=0))
    assert found.shape == (2,)
    assert found.isfinite().all()
