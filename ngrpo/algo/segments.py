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


def per_sequence_mean(values: Tensor, lengths: Tensor) -> Tensor:
    """Mean of ``values`` [N] over each sequence, [S] in the same dtype; 0 for a sequence of length 0."""
    index = sequence_index(lengths, values.shape[0])
    sums = values.new_zeros(lengths.shape[0]).index_add(0, index, values)
    return sums / lengths.clamp(min=1)
