"""The generator of countdown puzzles with a solution each, drawn from a key.

Puzzles of different splits never share their numbers: the split is a hash of them (`ngrpo.data.countdown.levels`).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ngrpo.data.countdown.levels import CountdownLevel
from ngrpo.data.word_problems.levels import Split
from ngrpo.rewards.answers.expression import Expression, Number, Operation
from ngrpo.types.problems import Problem

NUMBERS = "numbers"
"""The column of a problem that holds the numbers to be used."""


@dataclass(frozen=True)
class Puzzle:
    """Numbers, what is to be reached from them, and one way to do it.

    Attributes:
        numbers: each to be used once.
        target: what is to be reached.
        steps: the calculations of the solution, such as ``7-3=4``, in an order in which they can be done.
        solution: the expression.
    """

    numbers: tuple[int, ...]
    target: int
    steps: tuple[str, ...]
    solution: Expression

    @property
    def question(self) -> str:
        """The puzzle in words."""
        *first, last = map(str, self.numbers)
        return f"Reach {self.target} with + - * / from {', '.join(first)} and {last}, each used once."


def problem(key: int, split: Split, level: CountdownLevel) -> Problem:
    """The puzzle of this number in this split as a problem: the same on every machine and in every run.

    Its answer is the target, and its difficulty the count of its numbers, which are the column `NUMBERS`.
    """
    puzzle = draw(key, split, level)
    return Problem(
        key=key,
        question=puzzle.question,
        answer=str(puzzle.target),
        difficulty=float(len(puzzle.numbers)),
        columns={NUMBERS: list(puzzle.numbers)},
    )


def draw(key: int, split: Split, level: CountdownLevel) -> Puzzle:
    """The puzzle of this number in this split.

    Raises:
        ValueError: the key is negative.
    """
    if key < 0:
        raise ValueError(f"a problem's key is never negative, got {key}")
    rng = random.Random(f"{level.name} {split} {key}")
    return next(puzzle for puzzle in _puzzles(rng, level) if level.split_of(puzzle.numbers) == split)


def written(expression: Expression, outer: bool = True) -> str:
    """An expression with brackets around every operation in it."""
    if not isinstance(expression, Operation):
        return expression.form
    text = f"{written(expression.left, False)}{expression.sign}{written(expression.right, False)}"
    return text if outer else f"({text})"


def _puzzles(rng: random.Random, level: CountdownLevel) -> Iterator[Puzzle]:
    low, high = level.targets
    while True:
        numbers = tuple(rng.randint(1, level.largest) for _ in range(rng.randint(level.least, level.most)))
        made = _solution(rng, numbers, level.between)
        if made is not None and low <= made.target <= high:
            yield made


def _solution(rng: random.Random, numbers: tuple[int, ...], between: int) -> Puzzle | None:
    """Joins two of the numbers at a time, until there is one; what stands between is positive and not too large.

    Returns:
        None where two numbers can be joined in no such way.
    """
    left: list[Expression] = [Number(number) for number in numbers]
    steps = []
    while len(left) > 1:
        one, other = (left.pop(rng.randrange(len(left))) for _ in range(2))
        signs = [sign for sign in "+-*" if 0 < (Operation(one, sign, other).value or 0) <= between]
        if not signs:
            return None
        made = Operation(one, rng.choice(signs), other)
        steps.append(f"{one.value}{made.sign}{other.value}={made.value}")
        left.append(made)
    return Puzzle(numbers, int(left[0].value or 0), tuple(steps), left[0])
