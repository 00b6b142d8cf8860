"""Mean and variance over the whole rollout batch, on all ranks."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Reduce = Callable[[Tensor, Literal["sum", "max"]], Tensor]
"""Reduces a tensor elementwise over the ranks (a collective: every rank calls it equally often)."""


class Moments(NamedTuple):
    """Statistics of the values of all ranks, float64 scalars.

    Attributes:
        mean: 0 without values.
        variance: unbiased; 0 of fewer than two values.
        equal: bool, whether all values are the same number, tested exactly (see `ngrpo.algo.advantage.is_dead`).
    """

    mean: Tensor
    variance: Tensor
    equal: Tensor


def moments(values: Tensor, reduce: Reduce) -> Moments:
    """Returns the moments of ``values`` (any shape, NaN excluded) over all ranks."""
    valid = values[~values.isnan()].double()
    count, total = reduce(torch.stack((valid.new_tensor(float(len(valid))), valid.sum())), "sum").unbind()
    mean = total / count.clamp(min=1)
    variance = reduce((valid - mean).square().sum(), "sum") / (count - 1).clamp(min=1)
    nothing = valid.new_full((1,), -math.inf)
    extremes = torch.stack([torch.cat((side, nothing)).max() for side in (valid, -valid)])
    highest, negated_lowest = reduce(extremes, "max").unbind()
    return Moments(mean, variance, highest <= -negated_lowest)


def whitened(values: Tensor, reduce: Reduce, eps: float = 1e-8) -> Tensor:
    """``(x - mean) / sqrt(var + eps)`` over all ranks, exactly 0 where all values are equal; NaN is kept.

    Args:
        values: float, any shape.
        reduce: over the ranks.
        eps: added to the variance; verl's.

    Returns:
        The same shape and dtype.
    """
    found = moments(values, reduce)
    white = (values.double() - found.mean) / (found.variance + eps).sqrt()
    return white.masked_fill(found.equal & ~values.isnan(), 0.0).to(values.dtype)
