"""Partition of a rank's sequences into minibatches (optimiser steps) and microbatches (forward passes)."""

import heapq
from collections.abc import Callable, Sequence


def contiguous(count: int, parts: int) -> list[range]:
    """Cuts ``range(count)`` into ``parts`` equal runs; ``parts`` divides ``count``."""
    size = count // parts
    return [range(start, start + size) for start in range(0, count, size)]


def microbatches(
    lengths: Sequence[int], costs: Sequence[float], budget: int, agree: Callable[[int], int]
) -> list[list[int]]:
    """Partitions sequences into microbatches of at most ``budget`` tokens and balanced cost, the costliest first.

    Every rank must make the same number of forward passes, since each one is a collective under FSDP; ranks
    hold equally many sequences, so any number up to that can be agreed on, and where their costs are alike, so are
    those of the passes they make at a time. A sequence longer than the budget gets a microbatch of its own.

    Args:
        lengths: tokens of each of S sequences, S >= 1.
        costs: of each sequence; they grow with its tokens.
        budget: most tokens in a microbatch of more than one sequence.
        agree: returns the largest value over the ranks of the number this rank needs.

    Returns:
        Indices of the sequences of each microbatch; none is empty.
    """
    needed = max(1, -(-sum(min(length, budget) for length in lengths) // budget))
    while needed < len(lengths) and _overfull(balanced(costs, needed), lengths, budget):
        needed += 1
    return sorted(balanced(costs, agree(needed)), key=lambda part: -sum(costs[i] for i in part))


def balanced(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Puts each sequence, costliest first, into the part of least cost; no part stays empty."""
    heap: list[tuple[float, int, int]] = [(0.0, 0, part) for part in range(parts)]
    out: list[list[int]] = [[] for _ in range(parts)]
    for index in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        cost, count, part = heapq.heappop(heap)
        out[part].append(index)
        heapq.heappush(heap, (cost + costs[index], count + 1, part))
    return out


def _overfull(parts: list[list[int]], lengths: Sequence[int], budget: int) -> bool:
    return any(len(part) > 1 and sum(lengths[i] for i in part) > budget for part in parts)
