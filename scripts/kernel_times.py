"""Kernel time beside wall time: how long a GPU was busy, however long the host took."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


class Kernel(NamedTuple):
    """One kernel, copy or fill on a GPU.

    Attributes:
        name: as the profiler gives it.
        start: of its run, in ns since 1970 (`time.time_ns`).
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


Span = tuple[int, int]
"""Start and end, in ns since 1970."""


def started_in(kernels: Sequence[Kernel], spans: Sequence[Span]) -> list[Kernel]:
    """Returns the kernels that started in one of the spans."""
    return [kernel for kernel in kernels if any(start <= kernel.start < end for start, end in spans)]


class IterationKernels:
    """The kernels of one iteration of a training, whose wall time is not to be counted.

    Args:
        after: number of iterations before it; None for none to be recorded.
    """

    def __init__(self, after: int | None) -> None:
        self._after = after
        self._recording = ExitStack()
        self._kernels: list[Kernel] = []
        self._generation: list[Span] = []

    def generation(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function that generates, which notes when it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self._generation.append((start, time.time_ns()))

        return run

    def recorded(self, iterations: int) -> bool:
        """Whether the iteration that has just ended as the last of so many is the recorded one."""
        return self._after is not None and iterations == self._after + 1

    def ended(self, iterations: int) -> dict[str, float]:
        """Is told after each iteration how many have ended; returns seconds by name, none but after the recorded one.

        ``kernel_s`` is the time in which a kernel ran, ``generate_kernel_s`` that of kernels started in generation.
        """
        if iterations == self._after:
            self._generation.clear()
            self._kernels = self._recording.enter_context(recorded_kernels())
        if not self.recorded(iterations):
            return {}
        self._recording.close()
        generation = started_in(self._kernels, self._generation)
        return {"kernel_s": busy_seconds(self._kernels), "generate_kernel_s": busy_seconds(generation)}
