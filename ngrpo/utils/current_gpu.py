"""The GPU that a thread works on."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def on_current_gpu(function: Callable[[], T]) -> Callable[[], T]:
    """Returns a function that works on this thread's GPU in any thread; a new thread's own is the first one."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not started:  # a run on a CPU leaves GPUs alone
        return function
    device = torch.cuda.current_device()

    def run() -> T:
        with torch.cuda.device(device):
            return function()

    return run
