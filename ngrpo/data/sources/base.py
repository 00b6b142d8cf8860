"""The contract of a source of problems."""

from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

from ngrpo.types.problems import Excluded, Problem

Row = Problem | Excluded
Split = Literal["train", "held_out"]

BOXED_INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@runtime_checkable
class ProblemSource(Protocol):
    """A deterministic, seekable sequence of problems.

    Unusable rows are yielded too, as `Excluded`, so that positions count the rows of the source.
    """

    @property
    def identity(self) -> str:
        """Names the data; a checkpoint may only be resumed on a source of the same identity."""

    @property
    def instruction(self) -> str | None:
        """What to append to the question unless the user says otherwise."""

    @property
    def in_memory(self) -> bool:
        """Whether all rows are at hand, so that the unusable ones can be counted before training."""

    @property
    def endless(self) -> bool:
        """Whether it is generated without end: it has one epoch, and nothing in it is looked for twice."""

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield the rows in their own order, from the `start`-th on; may never end."""

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        """Yield the rows in the training order of one epoch, from its `start`-th on.

        The order is a function of (seed, epoch) alone.
        """
