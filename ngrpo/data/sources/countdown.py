"""The countdown puzzles as a source."""

from ngrpo.data.countdown.levels import CountdownLevel
from ngrpo.data.sources.endless import GeneratedSource
from ngrpo.data.word_problems.levels import Split
from ngrpo.types.problems import Problem


class CountdownSource(GeneratedSource):
    """Problems of `ngrpo.data.countdown.generator`."""

    def __init__(self, split: Split = "train", level: CountdownLevel | None = None) -> None:
        self.split: Split = split
        self.level = level or CountdownLevel()
        super().__init__(f"{self.level.name}:{split}", self._problem)

    def _problem(self, key: int) -> Problem:
        from ngrpo.data.countdown.generator import problem

        return problem(key, self.split, self.level)
