"""Load balancing: as many sequences on every rank, and nearly as much work.

Where a rank computes a prompt once, sequences of a prompt are less work on one rank than on several. Whole groups are
few, though, and may differ much in cost; so they are also cut into pieces, and the best of these assignments is taken.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ngrpo.distributed.collectives import exchanged, gathered
from ngrpo.training.batching import contiguous

T = TypeVar("T")


class SequenceCost(NamedTuple):
    """What a sequence costs the rank that trains on it, in floating-point operations.

    Attributes:
        alone: of the whole sequence.
        prompt: the same number for all sequences whose prompt a rank computes once.
        repeated: the part of ``alone`` that the rank saves for every further sequence of the prompt.
    """

    alone: float
    prompt: int
    repeated: float


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


def assign_pieces(costs: Sequence[SequenceCost], size: int, ranks: int) -> list[int]:
    """Assigns pieces of groups as `assign_ranks` assigns sequences; the pieces of a group are nearly equal in cost.

    Args:
        costs: of each sequence.
        size: sequences in a piece; divides the number that each prompt has. 1 assigns them one by one.
        ranks: R, which divides the number of pieces.

    Returns:
        The rank of each sequence; every rank gets as many.
    """
    groups: dict[int, list[int]] = {}
    for index in sorted(range(len(costs)), key=lambda i: (-costs[i].alone, i)):
        groups.setdefault(costs[index].prompt, []).append(index)
    pieces = sorted(piece for group in groups.values() for piece in _pieces(group, len(group) // size))
    work = [sum(costs[i].alone for i in piece) - (size - 1) * costs[piece[0]].repeated for piece in pieces]
    rank_of = {i: rank for piece, rank in zip(pieces, assign_ranks(work, ranks), strict=True) for i in piece}
    return [rank_of[i] for i in range(len(costs))]


def _pieces(group: list[int], count: int) -> list[list[int]]:
    return [group[start::count] for start in range(count)]


def rank_loads(costs: Sequence[SequenceCost], assigned: Sequence[int], ranks: int) -> list[float]:
    """Returns the cost of all sequences of each rank, in which a prompt of several counts once; R numbers."""
    loads = [0.0] * ranks
    computed: set[tuple[int, int]] = set()
    for cost, rank in zip(costs, assigned, strict=True):
        here = (rank, cost.prompt)
        loads[rank] += cost.alone - cost.repeated if here in computed else cost.alone
        computed.add(here)
    return loads


def assign_groups(costs: Sequence[SequenceCost], ranks: int) -> list[int]:
    """Assigns sequences to ranks in pieces of their groups, of the size that leaves the most loaded rank the least.

    Only sizes are tried that divide every group's and leave every rank as many pieces; 1 always does, and is taken
    unless another is better.

    Args:
        costs: of each sequence; ``ranks`` divides their number.
        ranks: R.

    Returns:
        The rank of each sequence; every rank gets as many.
    """
    common = math.gcd(*Counter(cost.prompt for cost in costs).values())
    sizes = [size for size in range(1, common + 1) if common % size == 0 and len(costs) // size % ranks == 0]
    choices = (assign_pieces(costs, size, ranks) for size in sizes)
    return min(choices, key=lambda assigned: max(rank_loads(costs, assigned, ranks)))


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
    def of(cls, costs: Sequence[SequenceCost], minibatches: int, rank: int) -> "LoadBalance":
        """Balances a rollout batch: in every minibatch all ranks get equally many sequences, of nearly equal cost.

        Args:
            costs: of the S sequences that this rank generated, as many as every rank did; prompts are numbered from 0
                to S - 1, on each rank by itself.
            minibatches: optimiser steps; each takes an equal run of every rank's sequences.
            rank: this one.
        """
        everyone = gathered(list(costs))
        ranks = len(everyone)
        trained_on, generated_on = [], []
        for part in contiguous(len(costs), minibatches):
            pool = [_numbered(everyone[source][i], source * len(costs)) for source in range(ranks) for i in part]
            assigned = assign_groups(pool, ranks)
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


def _numbered(cost: SequenceCost, start: int) -> SequenceCost:
    """Returns it with its prompt's number counted from another: those of two ranks are never one prompt."""
    return cost._replace(prompt=start + cost.prompt)
