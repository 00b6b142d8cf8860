"""The built-in problem generator as a source."""

from collections.abc import Iterator
from itertools import count

from ngrpo.data.sources.base import Row
from ngrpo.data.word_problems.levels import SHIPPED, Level, Split


class DemoSource:
    """Problems of `ngrpo.data.word_problems.generator`, numbered from 0; never ends, so there is one epoch only."""

    instruction: str | None = None
    in_memory = False
    endless = True

    def __init__(self, split: Split = "train", level: Level = SHIPPED) -> None:
        self.split: Split = split
        self.level = level
        self.identity = f"{level.name}:{split}"

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield problem `start`, `start` + 1, ..."""
        from ngrpo.data.word_problems.generator import problem

        return (problem(key, self.split, self.level) for key in count(start))

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        """Same as `rows`: generated problems come in random order already."""
        return self.rows(start)
