"""Cutting a rank's sequences into minibatches (optimiser steps) and microbatches (forward passes)."""

import heapq
from collections.abc import Callable, Sequence


def contiguous(count: int, parts: int) -> list[range]:
    """Cuts ``range(count)`` into ``parts`` equal runs; ``parts`` divides ``count``."""
    size = count // parts
    return [range(start, start + size) for start in range(0, count, size)]


def microbatches(lengths: Sequence[int], budget: int, agree: Callable[[int], int]) -> list[list[int]]:
    """Partitions sequences into balanced microbatches of at most ``budget`` tokens.

    Every rank must make the same number of forward passes, since each one is a collective under FSDP; ranks
    hold equally many sequences, so any number up to that can be agreed on. A sequence longer than the budget
    gets a microbatch of its own.

    Args:
        lengths: tokens of each of S sequences, S >= 1.
        budget: most tokens in a microbatch of more than one sequence.
        agree: returns the largest value over the ranks of the number this rank needs.

    Returns:
        Indices of the sequences of each microbatch; none is empty.
    """
    needed = max(1, -(-sum(min(length, budget) for length in lengths) // budget))
    while needed < len(lengths) and _overfull(balanced(lengths, needed), lengths, budget):
        needed += 1
    return balanced(lengths, agree(needed))


def balanced(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Puts each sequence, longest first, into the part with the fewest tokens; no part stays empty."""
    heap = [(0, 0, part) for part in range(parts)]
    out: list[list[int]] = [[] for _ in range(parts)]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        tokens, count, part = heapq.heappop(heap)
        out[part].append(index)
        heapq.heappush(heap, (tokens + lengths[index], count + 1, part))
    return out


def _overfull(parts: list[list[int]], lengths: Sequence[int], budget: int) -> bool:
    return any(len(part) > 1 and sum(lengths[i] for i in part) > budget for part in parts)
