"""Partition of a rank's sequences into minibatches (optimiser steps) and microbatches (forward passes)."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ngrpo.modeling.shared_prompts import LEAST_REPEATED


def contiguous(count: int, parts: int) -> list[range]:
    """Cuts ``range(count)`` into ``parts`` equal runs; ``parts`` divides ``count``."""
    size = count // parts
    return [range(start, start + size) for start in range(0, count, size)]


class SequencePrompt(NamedTuple):
    """The prompt of a sequence.

    Attributes:
        number: the same for all sequences that it has.
        tokens: its length.
    """

    number: int
    tokens: int


def microbatches(
    lengths: Sequence[int],
    costs: Sequence[float],
    budget: int,
    agree: Callable[[int], int],
    prompts: Sequence[SequencePrompt] | None = None,
) -> list[list[int]]:
    """Partitions sequences into microbatches of at most ``budget`` tokens, the costliest first.

    Every rank must make the same number of forward passes, since each one is a collective under FSDP; ranks
    hold equally many sequences, so any number up to that can be agreed on, and where their costs are alike, so are
    those of the passes they make at a time. A sequence longer than the budget gets a microbatch of its own.

    Microbatches are of balanced cost. Where prompts are computed once in each, and it leaves notably fewer tokens to
    compute, sequences of a prompt follow each other instead, and are cut into microbatches of balanced length.

    Args:
        lengths: tokens of each of S sequences, S >= 1.
        costs: of each sequence; they grow with its tokens.
        budget: most tokens in a microbatch of more than one sequence.
        agree: returns the largest value over the ranks of the number this rank needs.
        prompts: of each sequence; None where each sequence's is computed.

    Returns:
        Indices of the sequences of each microbatch; none is empty.
    """
    partition = partial(balanced, costs)
    needed = max(1, -(-sum(min(length, budget) for length in lengths) // budget))
    while needed < len(lengths) and _overfull(partition(needed), lengths, budget):
        needed += 1
    if prompts is not None:
        order = sorted(range(len(lengths)), key=lambda i: prompts[i])
        in_order, fewest = partial(in_runs, lengths, order), len(_filled(lengths, order, budget))
        saved = _prompt_tokens(partition(needed), prompts) - _prompt_tokens(in_order(fewest), prompts)
        if saved >= LEAST_REPEATED * sum(lengths):
            partition, needed = in_order, fewest
    return sorted(partition(agree(needed)), key=lambda part: -sum(costs[i] for i in part))


def in_runs(lengths: Sequence[int], order: Sequence[int], parts: int) -> list[list[int]]:
    """Cuts sequences, in an order, into ``parts`` runs; the longest has as few tokens as can be, and none is empty."""
    most = bisect_left(range(sum(lengths)), True, key=lambda most: len(_filled(lengths, order, most)) <= parts)
    made = _filled(lengths, order, most)
    while len(made) < parts:
        widest = max(range(len(made)), key=lambda i: len(made[i]))
        middle = len(made[widest]) // 2
        made[widest : widest + 1] = [made[widest][:middle], made[widest][middle:]]
    return made


def _filled(lengths: Sequence[int], order: Sequence[int], most: int) -> list[list[int]]:
    """Cuts into as few runs of at most ``most`` tokens as can be; a sequence longer than that is a run of its own."""
    made: list[list[int]] = []
    tokens = 0
    for index in order:
        if made and tokens + lengths[index] <= most:
            made[-1].append(index)
            tokens += lengths[index]
        else:
            made.append([index])
            tokens = lengths[index]
    return made


def _prompt_tokens(parts: list[list[int]], prompts: Sequence[SequencePrompt]) -> int:
    """Returns the tokens of prompts that microbatches compute."""
    return sum(prompt.tokens for part in parts for prompt in {prompts[i] for i in part})


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
