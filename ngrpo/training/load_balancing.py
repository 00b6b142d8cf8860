"""Load balancing: as many sequences on every rank, and nearly as much work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ngrpo.distributed.collectives import exchanged, gathered
from ngrpo.training.batching import contiguous

T = TypeVar("T")


def assign_ranks(costs: Sequence[float], ranks: int) -> list[int]:
    """Assigns sequences to ranks, the costliest first, in rounds of one a rank: the costliest to the least loaded.

    Args:
        costs: of each sequence; ``ranks`` divides their number.
        ranks: R.

    Returns:
        The rank of each sequence; every rank gets as many.
    """
    order = sorted(range(len(costs)), key=lambda i: (-costs[i], i))
    loads = [0.0] * ranks
    out = [0] * len(costs)
    for start in range(0, len(order), ranks):
        least = sorted(range(ranks), key=lambda rank: (loads[rank], rank))
        for index, rank in zip(order[start : start + ranks], least, strict=True):
            out[index] = rank
            loads[rank] += costs[index]
    return out


@dataclass(frozen=True)
class LoadBalance:
    """Sends objects of a rollout batch's sequences to the ranks that train on them, and back (collectives).

    Attributes:
        trained_on: for each sequence that this rank generated, the rank that trains on it.
        generated_on: for each sequence that this rank trains on, minibatch by minibatch, the rank that generated it.
        ranks: R.
    """

    trained_on: list[int]
    generated_on: list[int]
    ranks: int

    @classmethod
    def of(cls, costs: Sequence[float], minibatches: int, rank: int) -> "LoadBalance":
        """Balances a rollout batch: in every minibatch all ranks get equally many sequences, of nearly equal cost.

        Args:
            costs: of the sequences that this rank generated; every rank has equally many.
            minibatches: optimiser steps; each takes an equal run of every rank's sequences.
            rank: this one.
        """
        everyone = gathered(list(costs))
        ranks = len(everyone)
        trained_on, generated_on = [], []
        for part in contiguous(len(costs), minibatches):
            pool = [everyone[source][i] for source in range(ranks) for i in part]
            assigned = assign_ranks(pool, ranks)
            trained_on += assigned[rank * len(part) : (rank + 1) * len(part)]
            generated_on += [number // len(part) for number, target in enumerate(assigned) if target == rank]
        return cls(trained_on, generated_on, ranks)

    def scatter(self, items: Sequence[T]) -> list[T]:
        """Takes a picklable object for each sequence generated here, returns one for each that is trained on here."""
        return self._exchange(items, self.trained_on, self.generated_on)

    def gather(self, items: Sequence[T]) -> list[T]:
        """The inverse of `scatter`."""
        return self._exchange(items, self.generated_on, self.trained_on)

    def _exchange(self, items: Sequence[T], targets: list[int], sources: list[int]) -> list[T]:
        # Both sides list what passes between two ranks in one order, that of the minibatches and of the generator.
        parts: list[list[T]] = [[] for _ in range(self.ranks)]
        for item, target in zip(items, targets, strict=True):
            parts[target].append(item)
        arrived: list[Callable[[], T]] = [iter(part).__next__ for part in exchanged(parts)]
        return [arrived[source]() for source in sources]
