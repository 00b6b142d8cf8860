"""Which rank trains on which sequences: as many on each, and as much work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ngrpo.distributed.collectives import exchanged, gathered
from ngrpo.training.batching import contiguous

T = TypeVar("T")


def dealt(costs: Sequence[float], ranks: int) -> list[int]:
    """Deals sequences out, dearest first, a round of one to each rank at a time: the dearest to the least loaded.

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
class Placement:
    """Takes things of a rollout batch's sequences to the rank that trains on them, and back (collectives).

    Attributes:
        own: for each of this rank's sequences, who trains on it.
        held: for each sequence that this rank trains on, minibatch by minibatch, who generated it.
        ranks: R.
    """

    own: list[int]
    held: list[int]
    ranks: int

    @classmethod
    def of(cls, costs: Sequence[float], minibatches: int, rank: int) -> "Placement":
        """Places a rollout batch: in every minibatch all ranks get equally many sequences, of nearly equal cost.

        Args:
            costs: of this rank's sequences; every rank has equally many.
            minibatches: optimiser steps; each takes an equal run of every rank's sequences.
            rank: this one.
        """
        everyone = gathered(list(costs))
        ranks = len(everyone)
        own, held = [], []
        for part in contiguous(len(costs), minibatches):
            pool = [everyone[source][i] for source in range(ranks) for i in part]
            holders = dealt(pool, ranks)
            own += holders[rank * len(part) : (rank + 1) * len(part)]
            held += [number // len(part) for number, holder in enumerate(holders) if holder == rank]
        return cls(own, held, ranks)

    def outward(self, items: Sequence[T]) -> list[T]:
        """Takes one picklable thing for each own sequence, returns one for each sequence trained on here."""
        return self._moved(items, self.own, self.held)

    def homeward(self, items: Sequence[T]) -> list[T]:
        """The way back."""
        return self._moved(items, self.held, self.own)

    def _moved(self, items: Sequence[T], targets: list[int], sources: list[int]) -> list[T]:
        # Both sides list what passes between two ranks in one order, that of the minibatches and of the generator.
        parts: list[list[T]] = [[] for _ in range(self.ranks)]
        for item, target in zip(items, targets, strict=True):
            parts[target].append(item)
        arrived: list[Callable[[], T]] = [iter(part).__next__ for part in exchanged(parts)]
        return [arrived[source]() for source in sources]
