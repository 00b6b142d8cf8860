"""Capture of CUDA graphs while the device works: without `torch.cuda.graph`'s wait for it and collection of garbage."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import torch


def memory_pool() -> Any:
    """Returns a name for the memory of graphs of which never two run at once.

    It ends with the last graph in it, and is not to be used again then.
    """
    return torch.cuda.graph_pool_handle()


def captured(work: Callable[[], object], pool: Any) -> torch.cuda.CUDAGraph:
    """Captures work as a CUDA graph, without doing it.

    Args:
        work: on tensors that stay where they are.
        pool: see `memory_pool`.

    Raises:
        Exception: what stands in the way.
    """
    graph, stream = torch.cuda.CUDAGraph(), _capture_stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Another thread may use the device meanwhile.
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            work()
        except Exception:
            with suppress(Exception):  # which says no more than that the capture has failed
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """Returns the stream for captures: libraries keep workspaces for each stream that they have seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
