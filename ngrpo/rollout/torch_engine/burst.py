"""Bursts: decode steps without a look of the host, on a GPU replayed from CUDA graphs."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

from ngrpo.utils.cuda_graphs import captured, memory_pool


class StepShape(NamedTuple):
    """The sizes of a decode step; everything else that it depends on is in tensors.

    Attributes:
        rows: first rows that are run, R.
        length: positions of their slots that are read, L: more than their newest tokens' positions.
    """

    rows: int
    length: int

    def rounded(self, largest: "StepShape") -> "StepShape":
        """Returns sizes of which there are few, so that few graphs serve all."""
        return StepShape(*(min(round_up(size), most) for size, most in zip(self, largest, strict=True)))


def round_up(size: int) -> int:
    """Returns the next of 1, 2, 3, 4, 6, 8, 12, 16 ...: powers of two and one size between each two."""
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 and power > 2 else power


class Replay(Protocol):
    """A captured step."""

    def replay(self) -> None:
        """Makes the step."""


class Steps:
    """The decode steps of one call: made one by one, or captured and replayed.

    What a shape's first step needs (kernels that are loaded, code that is compiled) is there once it has been made
    uncaptured; it is captured then. A step that cannot be captured is made uncaptured, and the log says why.

    Args:
        step: makes one step of a shape; reads nothing back to the host.
        largest: shape of the whole batch, if steps are to be captured; None for as they are.
        note: is told why a step cannot be captured.
    """

    def __init__(
        self, step: Callable[[StepShape], None], largest: StepShape | None, note: Callable[[str], None] | None = None
    ) -> None:
        self.step = step
        self.largest = largest
        self.failure: str | None = None
        self._note = note
        self.graphs: dict[StepShape, Replay] = {}
        self._pool: Any = None

    def run(self, shape: StepShape, count: int) -> None:
        """Makes ``count`` steps of rows that fit the shape at all of them."""
        if self.largest is None:
            self._make(shape, count)
            return
        shape = shape.rounded(self.largest)
        if shape not in self.graphs:
            self._make(shape, 1)
            count -= 1
            if not count or not self._capture(shape):
                self._make(shape, count)
                return
        for _ in range(count):
            self.graphs[shape].replay()

    def _make(self, shape: StepShape, count: int) -> None:
        for _ in range(count):
            self.step(shape)

    def _capture(self, shape: StepShape) -> bool:
        """Returns whether it could be done; if not, nothing is captured any more."""
        if self._pool is None:
            self._pool = memory_pool()
        try:
            self.graphs[shape] = captured(lambda: self.step(shape), self._pool)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            self.largest = None
            if self._note is not None:
                self._note(self.failure)
            return False
        return True


def captures(device: torch.device) -> bool:
    """Says whether steps on a device can be captured at all."""
    return device.type == "cuda"
