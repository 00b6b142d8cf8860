"""The lessons of the demo models: questions with responses to them, and problems to be measured on."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ngrpo.data.countdown import generator as countdown
from ngrpo.data.countdown.levels import CountdownLevel
from ngrpo.data.word_problems import generator as word_problems
from ngrpo.data.word_problems.levels import Level, Split
from ngrpo.demo_model.responses import direct, gains_first, stepped
from ngrpo.demo_model.tokenizer import END_THINK
from ngrpo.rewards.countdown import CountdownReward
from ngrpo.types.problems import Problem


@dataclass(frozen=True)
class Lesson:
    """A question and what a model is to respond to it."""

    question: str
    response: str


class Lessons(Protocol):
    """What a demo model is taught."""

    def lesson(self, key: int, settled: bool) -> Lesson:
        """Returns the lesson of this number, on a problem of the train split.

        Args:
            key: the number of the problem.
            settled: in the last part of the training.
        """

    def texts(self, count: int) -> Iterator[str]:
        """Yields questions and responses for the tokenizer to learn from."""

    def problem(self, key: int, split: Split) -> Problem:
        """Returns the problem of this number."""

    def is_right(self, text: str, problem: Problem) -> bool:
        """Says whether a response solves a problem; as in training, none does before the reasoning is closed."""


@dataclass(frozen=True)
class WordProblemLessons:
    """Word problems, with the steps written out or answered at once.

    The shares of responses with the steps written out are those of two parts of the training: first to learn to
    calculate, then to prefer not to. The model writes steps less often than ``settle`` says: a token in a batch of
    short (direct) responses weighs more.

    Attributes:
        level: the problems.
        learn: probability that the steps are written out, by their number, at first.
        settle: the same, at the end.
        gains_first: share of the written-out responses that tell of all gains before all losses.
    """

    level: Level
    learn: Mapping[int, float]
    settle: Mapping[int, float]
    gains_first: float = 0.0

    def lesson(self, key: int, settled: bool) -> Lesson:
        """Returns the lesson of this number."""
        story, question = word_problems.draw(key, "train", self.level)
        rng = random.Random(key)
        shares = self.settle if settled else self.learn
        respond = stepped if rng.random() < shares[len(story.equations)] else direct
        if respond is stepped and self.gains_first and rng.random() < self.gains_first:
            respond = gains_first
        return Lesson(question, respond(story, rng))

    def texts(self, count: int) -> Iterator[str]:
        """Yields questions and both kinds of response to them."""
        for key in range(count):
            story, question = word_problems.draw(key, "train", self.level)
            rng = random.Random(key)
            yield from (question, stepped(story, rng), direct(story, rng))

    def problem(self, key: int, split: Split) -> Problem:
        """Returns the problem of this number."""
        return word_problems.problem(key, split, self.level)

    def is_right(self, text: str, problem: Problem) -> bool:
        """Says whether a response ends with the answer in a box."""
        return END_THINK in text and text.endswith(f"\\boxed{{{problem.answer}}}")


@dataclass(frozen=True)
class CountdownLessons:
    """Countdown puzzles, each with the solution that it was made from: its calculations, then the expression.

    Attributes:
        level: the puzzles.
    """

    level: CountdownLevel

    def lesson(self, key: int, settled: bool) -> Lesson:
        """Returns the lesson of this number; the last part of the training is as the first."""
        puzzle = countdown.draw(key, "train", self.level)
        steps = ", ".join(puzzle.steps)
        return Lesson(puzzle.question, f"{steps}.\n{END_THINK}\n\\boxed{{{countdown.written(puzzle.solution)}}}")

    def texts(self, count: int) -> Iterator[str]:
        """Yields questions and responses."""
        for key in range(count):
            lesson = self.lesson(key, settled=False)
            yield from (lesson.question, lesson.response)

    def problem(self, key: int, split: Split) -> Problem:
        """Returns the puzzle of this number."""
        return countdown.problem(key, split, self.level)

    def is_right(self, text: str, problem: Problem) -> bool:
        """Says whether a response solves a puzzle, in whichever way."""
        (score,) = CountdownReward()([text], [problem.answer], [problem.columns[countdown.NUMBERS]])
        return END_THINK in text and score.correct
