"""Means over seeds with intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from mpmath import betainc

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean over n seeds with its 95 % interval; the bounds are NaN for a single seed.

    Attributes:
        value: the mean.
        low: lower bound.
        high: upper bound.
        n: seeds.
    """

    value: float
    low: float
    high: float
    n: int


def mean_of(values: Sequence[float]) -> Mean:
    """Mean with Student's t-interval: the values are taken for independent draws from one normal distribution.

    Raises:
        ValueError: there are none.
    """
    n = len(values)
    if not n:
        raise ValueError("a mean needs at least one value")
    mean = math.fsum(values) / n
    if n == 1:
        return Mean(mean, math.nan, math.nan, n)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = t_quantile((1 + LEVEL) / 2, n - 1) * math.sqrt(variance / n)
    return Mean(mean, mean - half, mean + half, n)


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Mean | None:
    """Mean difference over the seeds that both arms have; what a seed does to both (its problems, its order) cancels.

    Args:
        values: an arm's figure by seed.
        reference: that of the arm it is compared with.

    Returns:
        None if they share no seed.
    """
    common = sorted(values.keys() & reference.keys())
    return mean_of([values[seed] - reference[seed] for seed in common]) if common else None


@cache
def t_quantile(p: float, freedom: int) -> float:
    """Quantile of Student's t-distribution for p >= 0.5, by bisection of its distribution function."""
    low, high = 0.0, 1.0
    while _t_below(high, freedom) < p:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_below(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _t_below(t: float, freedom: int) -> float:
    """Probability of a value below t >= 0."""
    return 1.0 - 0.5 * float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True))
