"""Sources without an end, whose problems are made from their numbers."""

from collections.abc import Callable, Iterator
from itertools import count

from ngrpo.data.sources.base import Row
from ngrpo.types.problems import Problem


class GeneratedSource:
    """Problems made from their numbers, from 0 on; never ends, so there is one epoch only.

    Args:
        identity: names them.
        make: returns the problem of a number, the same at every call.
    """

    instruction: str | None = None
    in_memory = False
    endless = True

    def __init__(self, identity: str, make: Callable[[int], Problem]) -> None:
        self.identity = identity
        self._make = make

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield problem `start`, `start` + 1, ..."""
        return (self._make(key) for key in count(start))

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        """Same as `rows`: generated problems come in random order already."""
        return self.rows(start)
