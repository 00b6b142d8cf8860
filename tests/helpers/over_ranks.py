"""Reductions over ranks without processes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import torch
from torch import Tensor


def alone(value: Tensor, op: str) -> Tensor:
    """The reduction of a single rank."""
    return value


def in_ranks(function: Callable[..., Any], parts: Sequence[Any]) -> list[Any]:
    """Calls ``function(part, reduce)`` for all parts at once, a thread a rank; returns what each returns.

    Load no model inside: transformers replaces methods of its classes meanwhile, and threads would not all put them
    back.
    A rank that calls ``reduce`` more or less often than the others hangs and is reported as a broken barrier.
    """
    posted: list[Any] = [None] * len(parts)
    barrier = Barrier(len(parts))

    def run(rank: int) -> Any:
        def reduce(value: Tensor, op: str) -> Tensor:
            posted[rank] = value
            barrier.wait(10)
            stacked = torch.stack(list(posted))
            barrier.wait(10)
            return stacked.sum(0) if op == "sum" else stacked.amax(0)

        return function(parts[rank], reduce)

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, range(len(parts))))
