"""The built-in word problems as a source."""

from ngrpo.data.sources.endless import GeneratedSource
from ngrpo.data.word_problems.levels import SHIPPED, Level, Split
from ngrpo.types.problems import Problem


class DemoSource(GeneratedSource):
    """Problems of `ngrpo.data.word_problems.generator`."""

    def __init__(self, split: Split = "train", level: Level = SHIPPED) -> None:
        super().__init__(f"{level.name}:{split}", self._problem)
        self.split: Split = split
        self.level = level

    def _problem(self, key: int) -> Problem:
        from ngrpo.data.word_problems.generator import problem

        return problem(key, self.split, self.level)
