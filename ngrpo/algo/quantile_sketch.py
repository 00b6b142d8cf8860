"""A sketch of a distribution of numbers that come one after the other, from which its quantiles are read."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

_SIZE = 100
"""Different numbers that are kept as they are; beyond that centroids are about as many."""


class QuantileSketch:
    """A t-digest: numbers that lie close together are kept as their mean and how many they are.

    Near both ends, where a quantile moves most with each number, centroids stay small. As long as the numbers are few
    different ones, such as shares of a group, all are kept, and quantiles are exact.

    Args:
        centroids: means and counts, by rising mean, of what an earlier sketch held.
    """

    def __init__(self, centroids: Iterable[tuple[float, float]] = ()) -> None:
        self.centroids = list(centroids)

    @property
    def count(self) -> float:
        """How many numbers there were."""
        return sum(count for _, count in self.centroids)

    def add(self, values: Sequence[float]) -> None:
        """Adds numbers, in any order."""
        waiting = sorted([*self.centroids, *((value, 1.0) for value in values)])
        alike = groupby(waiting, key=lambda one: one[0])
        different = [(mean, sum(count for _, count in some)) for mean, some in alike]
        self.centroids = different if len(different) <= _SIZE else _merged(different)

    def quantile(self, share: float) -> float:
        """Returns the smallest number that so large a share of all is not above.

        Raises:
            ValueError: there were none.
        """
        if not self.centroids:
            raise ValueError("no numbers have quantiles")
        wanted, done = share * self.count, 0.0
        for mean, count in self.centroids:
            done += count
            if done >= wanted:
                return mean
        return self.centroids[-1][0]


def _merged(centroids: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merges neighbours as long as a centroid covers a rise of the scale by at most 1."""
    total, done = sum(count for _, count in centroids), 0.0
    merged: list[tuple[float, float]] = []
    for mean, count in centroids:
        last, size = merged[-1] if merged else (mean, 0.0)
        if merged and _scale((done + count) / total) - _scale((done - size) / total) <= 1:
            merged[-1] = last + (mean - last) * count / (size + count), size + count
        else:
            merged.append((mean, count))
        done += count
    return merged


def _scale(share: float) -> float:
    """Rises steeply near 0 and 1."""
    return _SIZE / (2 * math.pi) * math.asin(2 * min(max(share, 0.0), 1.0) - 1)
