"""The generator of arithmetic word problems of a few steps, drawn from a key.

Problems of different splits never share a chain of calculations (numbers and operations, in order): the split is a hash
of the chain (`ngrpo.data.word_problems.levels`).
"""

import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ngrpo.data.word_problems import story_words as words
from ngrpo.data.word_problems.levels import SHIPPED, Level, Split
from ngrpo.types.problems import Problem

__all__ = ["Equation", "Operation", "Split", "Story", "ask", "draw", "number", "problem", "verb"]

Operation = Literal["+", "-", "*"]

_EVALUATE: dict[Operation, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True)
class Equation:
    """One written calculation, ``left operation right = value``."""

    left: int
    operation: Operation
    right: int

    @property
    def value(self) -> int:
        """What the calculation gives."""
        return _EVALUATE[self.operation](self.left, self.right)

    def __str__(self) -> str:
        return f"{self.left}{self.operation}{self.right}={self.value}"


@dataclass(frozen=True)
class Story:
    """The content of a problem; the wording is drawn apart from it.

    Attributes:
        name: who the story is about.
        pronoun: ``she`` or ``he``.
        objects: what is counted, in the plural.
        equations: the calculations that lead to the answer; a multiplication only comes first (so many containers with
            so many objects in each), and each later one starts from the value of the one before.
    """

    name: str
    pronoun: str
    objects: str
    equations: tuple[Equation, ...]

    @property
    def answer(self) -> int:
        """The number asked for."""
        return self.equations[-1].value

    @property
    def opening(self) -> str:
        """The number, or the product, that the story starts from."""
        first = self.equations[0]
        return f"{first.left}*{first.right}" if first.operation == "*" else str(first.left)

    @property
    def changes(self) -> tuple[Equation, ...]:
        """The additions and subtractions."""
        return self.equations[1:] if self.equations[0].operation == "*" else self.equations

    def split(self, level: Level) -> Split:
        """The split that this story's chain of calculations belongs to."""
        changes = [f"{equation.operation}{equation.right}" for equation in self.changes]
        return level.split_of(map(str, self.equations), [self.opening, *changes])

    def gains_first(self) -> "Story":
        """The same story with all additions before all subtractions, and the values that this gives."""
        total = self.changes[0].left if self.changes else 0
        equations = list(self.equations[: len(self.equations) - len(self.changes)])
        for change in sorted(self.changes, key=lambda equation: equation.operation != "+"):
            equations.append(Equation(total, change.operation, change.right))
            total = equations[-1].value
        return replace(self, equations=tuple(equations))


def problem(key: int, split: Split, level: Level = SHIPPED) -> Problem:
    """The problem of this number in this split: the same on every machine and in every run.

    Its difficulty is the number of its steps.
    """
    story, question = draw(key, split, level)
    return Problem(key=key, question=question, answer=str(story.answer), difficulty=float(len(story.equations)))


def draw(key: int, split: Split, level: Level = SHIPPED) -> tuple[Story, str]:
    """The story of this number in this split, and its question.

    Raises:
        ValueError: the key is negative.
    """
    if key < 0:
        raise ValueError(f"a problem's key is never negative, got {key}")
    rng = random.Random(f"{level.name} {split} {key}" if level.validates else f"{split} {key}")
    story = next(story for story in _stories(rng, level) if story.split(level) == split)
    return story, ask(story, rng)


def ask(story: Story, rng: random.Random) -> str:
    """The question, in words drawn from ``rng``."""
    first, *rest = story.equations
    opening = f"{story.name} {rng.choice(words.HAVE)}"
    if first.operation == "*":
        sentences = [
            f"{opening} {number(first.left, rng)} {rng.choice(words.CONTAINERS)} "
            f"with {number(first.right, rng)} {story.objects} in each."
        ]
    else:
        sentences = [f"{opening} {number(first.left, rng)} {story.objects}."]
        rest = [first, *rest]
    sentences += [_change(story, equation, rng) for equation in rest]
    closing = f"How many {story.objects} does {story.pronoun} have {rng.choice(words.ENDS)}?"
    return " ".join([*sentences, closing])


def number(value: int, rng: random.Random) -> str:
    """A number in digits or, up to twenty, in one word; drawn evenly."""
    return words.NUMBERS[value] if value < len(words.NUMBERS) and rng.random() < 0.5 else str(value)


def verb(operation: Operation, rng: random.Random) -> str:
    """A verb that tells of an addition or a subtraction."""
    return rng.choice(words.GAIN if operation == "+" else words.LOSE)


def _change(story: Story, equation: Equation, rng: random.Random) -> str:
    subject = rng.choice((story.pronoun.capitalize(), f"{rng.choice(words.LINKS)} {story.pronoun}"))
    tail = rng.choice(("", " more") if equation.operation == "+" else ("", " of them"))
    return f"{subject} {verb(equation.operation, rng)} {number(equation.right, rng)}{tail}."


def _stories(rng: random.Random, level: Level) -> Iterator[Story]:
    while True:
        pronoun = rng.choice(tuple(words.NAMES))
        yield Story(
            name=rng.choice(words.NAMES[pronoun]),
            pronoun=pronoun,
            objects=rng.choice(words.OBJECTS),
            equations=tuple(_chain(rng.randint(level.least, level.most), rng, level)),
        )


def _chain(steps: int, rng: random.Random, level: Level) -> Iterator[Equation]:
    if rng.random() < 0.25:
        equation = Equation(rng.randint(*level.containers), "*", rng.randint(*level.content))
    else:
        equation = _next(rng.randint(*level.start), rng, level.change)
    yield equation
    for _ in range(steps - 1):
        equation = _next(equation.value, rng, level.change)
        yield equation


def _next(total: int, rng: random.Random, largest: int) -> Equation:
    if total > 3 and rng.random() < 0.5:
        return Equation(total, "-", rng.randint(2, min(largest, total - 1)))
    return Equation(total, "+", rng.randint(2, largest))
