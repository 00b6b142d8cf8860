"""Order statistics over all ranks: the k-th smallest of values, and quantiles."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ngrpo.algo.moments import Reduce

_LOW_BITS = 2**63 - 1


def quantile(values: Tensor, share: float, reduce: Reduce) -> float:
    """Returns the quantile of the values of all ranks, between two of them by linear interpolation.

    Args:
        values: float, any shape; NaN is excluded.
        share: of the values that lie below, in [0, 1].
        reduce: over the ranks.

    Returns:
        NaN without values.
    """
    count = total(~values.isnan(), reduce)
    position = share * max(count - 1, 0)
    lower, upper = smallest(values, (math.floor(position) + 1, math.ceil(position) + 1), reduce)
    return lower + (position - math.floor(position)) * (upper - lower) if upper != lower else lower


def smallest(values: Tensor, ranks: Sequence[int], reduce: Reduce) -> list[float]:
    """Returns the k-th smallest of the values of all ranks, for each k.

    By bisection over the numbers that float64 has between the extremes, with one sum over the ranks a round and at most
    64 of them: nothing is gathered, and the result is one of the values, whatever rank holds which.

    Args:
        values: float, any shape; NaN is excluded.
        ranks: each k, from 1; the last where there are fewer values.
        reduce: over the ranks.

    Returns:
        NaN without values.
    """
    valid = values.detach()[~values.isnan()].double().flatten()
    count = total(torch.ones_like(valid), reduce)
    nothing = valid.new_full((1,), -math.inf)
    extremes = torch.stack([torch.cat((side, nothing)).max() for side in (valid, -valid)])
    highest, negated_lowest = reduce(extremes, "max").tolist()
    if count == 0:
        return [math.nan for _ in ranks]
    ordered = _order(valid)
    first, last = _order(torch.tensor([-negated_lowest, highest], dtype=torch.float64)).tolist()
    low, high = [first for _ in ranks], [last for _ in ranks]
    while low != high:
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        below = reduce(torch.stack([(ordered <= one).sum() for one in middle]).double(), "sum").tolist()
        for i, k in enumerate(ranks):
            enough = below[i] >= min(k, count)
            low[i], high[i] = (low[i], middle[i]) if enough else (min(middle[i] + 1, high[i]), high[i])
    return _value(torch.tensor(low)).tolist()


def total(values: Tensor, reduce: Reduce) -> int:
    """Returns the sum of whole numbers, or the count of a mask, over all ranks."""
    return round(float(reduce(values.sum().double(), "sum")))


def _order(values: Tensor) -> Tensor:
    """Returns whole numbers in the order of float64 values; -0 counts as 0."""
    bits = (values + 0.0).view(torch.int64)
    return bits ^ ((bits >> 63) & _LOW_BITS)


def _value(order: Tensor) -> Tensor:
    return (order ^ ((order >> 63) & _LOW_BITS)).view(torch.float64)
