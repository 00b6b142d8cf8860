"""Kernel time beside wall time: how long a GPU was busy, however long the host took."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


class Kernel(NamedTuple):
    """One kernel, copy or fill on a GPU.

    Attributes:
        name: as the profiler gives it.
        start: of its run, in ns on the profiler's clock.
        end: of its run.
    """

    name: str
    start: int
    end: int


def busy_seconds(kernels: Sequence[Kernel]) -> float:
    """Returns how long at least one of them was running: what overlaps on several streams counts once."""
    busy = until = 0
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        busy += max(0, kernel.end - max(kernel.start, until))
        until = max(until, kernel.end)
    return busy / 1e9


def seconds_by_name(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Returns the seconds of each name, the longest first; overlap counts each time."""
    seconds: dict[str, int] = {}
    for kernel in kernels:
        seconds[kernel.name] = seconds.get(kernel.name, 0) + kernel.end - kernel.start
    return {name: spent / 1e9 for name, spent in sorted(seconds.items(), key=lambda item: -item[1])}


@contextmanager
def recorded_kernels() -> Iterator[list[Kernel]]:
    """Yields a list that holds, after the block, the kernels that this process started in it; none without a GPU.

    Recording slows the host down: time the wall clock in a run of its own.
    """
    kernels: list[Kernel] = []
    if not torch.cuda.is_available():
        yield kernels
        return
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recording:
        yield kernels
        torch.cuda.synchronize()
    # `recording.events()` makes an object of many fields for each of the half a million events of an iteration.
    results = recording.profiler.kineto_results  # type: ignore[union-attr]
    for event in results.events():  # type: ignore[union-attr]
        if event.device_type() == DeviceType.CUDA and not event.is_user_annotation():
            kernels.append(Kernel(event.name(), event.start_ns(), event.start_ns() + event.duration_ns()))
