"""Sources made of a list of rows."""

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

from ngrpo.data.sources import Row
from ngrpo.types.problems import Excluded, Problem, Prompt


class MadeSource:
    """Rows as of a file, or as of a finite stream."""

    instruction = None
    endless = False

    def __init__(self, rows: Sequence[Row], in_memory: bool = True, name: str = "made") -> None:
        self.identity = name
        self.in_memory = in_memory
        self.made = list(rows)

    def rows(self, start: int = 0) -> Iterator[Row]:
        return iter(self.made[start:])

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        order = self.made.copy()
        Random(f"{self.identity}/{seed}/{epoch}").shuffle(order)
        return islice(iter(order), start, None)


class Counting:
    """Makes prompts, leaves out questions with "long" in them, and counts the problems it was given."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, problem: Problem) -> Prompt | Excluded:
        self.calls += 1
        return Excluded("prompt_too_long") if "long" in problem.question else Prompt(problem, (problem.key, 7))
