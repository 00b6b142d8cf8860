"""Reductions over packed sequences: per-token tensors are flat [N], ``lengths`` [S] sums to N."""

import torch
from torch import Tensor


def sequence_index(lengths: Tensor, total: int | None = None) -> Tensor:
    """The sequence that each token belongs to.

    Args:
        lengths: int64 [S].
        total: N when the caller knows it; saves a device synchronisation.

    Returns:
        int64 [N].
    """
    rows = torch.arange(lengths.shape[0], device=lengths.device)
    return rows.repeat_interleave(lengths, output_size=total)


def per_sequence_sum(values: Tensor, lengths: Tensor) -> Tensor:
    """Sum of ``values`` [N] over each sequence, [S] in the same dtype."""
    index = sequence_index(lengths, values.shape[0])
    return values.new_zeros(lengths.shape[0]).index_add(0, index, values)


def per_sequence_mean(values: Tensor, lengths: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean of ``values`` [N] over each sequence, [S] in the same dtype; 0 for a sequence of length 0.

    Args:
        values: float [N].
        lengths: int64 [S].
        weights: float [N], positive; None for equal ones.
    """
    if weights is None:
        return per_sequence_sum(values, lengths) / lengths.clamp(min=1)
    return per_sequence_sum(weights * values, lengths) / per_sequence_sum(weights, lengths).masked_fill(lengths == 0, 1)


def tokens_left(lengths: Tensor) -> Tensor:
    """Number of tokens of its sequence that follow each token; int64 [N], 0 at the last ones."""
    ends = lengths.cumsum(0)[sequence_index(lengths)]
    return ends - 1 - torch.arange(len(ends), device=lengths.device)


def discounted_suffix_sum(values: Tensor, lengths: Tensor, factor: float) -> Tensor:
    """``y_t = x_t + factor y_{t+1}`` inside each sequence, y after its end 0.

    By doubling: after round k each entry holds the sum of the 2^k tokens from it on, so that T tokens take log2 T
    passes over the packed batch.

    Args:
        values: float [N].
        lengths: int64 [S].
        factor: in [0, 1].

    Returns:
        [N] in the same dtype.
    """
    left, step, out = tokens_left(lengths), 1, values
    while step < int(lengths.max()):
        out = out + factor**step * out.roll(-step).masked_fill(left < step, 0.0)
        step *= 2
    return out
