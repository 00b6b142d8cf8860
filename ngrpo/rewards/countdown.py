r"""The countdown reward: an expression of given numbers, each used once, that reaches the target."""

import math
from collections import Counter
from collections.abc import Sequence

from ngrpo.errors import SettingError
from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.rewards.answers.expression import parse
from ngrpo.types.scores import Score, Verdict


class CountdownReward:
    r"""Scores the expression in the last ``\boxed{...}`` of each response, by exact fractions.

    It is right if it has each of the problem's numbers as often as they are given, and nothing but them, and its value
    is the reference. Any such expression is: a puzzle has many. Problems of ``data.path=countdown`` have the column
    ``numbers``; for a file of your own, name its field in ``data.keep_fields``.

    Args:
        reasoning_end: the marker that closes a reasoning block; see `ngrpo.rewards.answers.boxed.answer_of`.
        correct: the reward of a right expression.
        wrong: that of any other.

    Attributes:
        bounds: the smallest and the largest reward.

    Raises:
        SettingError: rewards that do not prefer right expressions.
    """

    def __init__(self, reasoning_end: str | None = "</think>", correct: float = 1.0, wrong: float = 0.0) -> None:
        if not (math.isfinite(correct) and math.isfinite(wrong) and correct > wrong):
            raise SettingError(
                f"reward.correct={correct} is not more than reward.wrong={wrong}, so that right answers would not be"
                " preferred; raise it, or lower the other."
            )
        self.bounds = (wrong, correct)
        self._reasoning_end = reasoning_end

    def __call__(
        self,
        responses: Sequence[str],
        references: Sequence[str],
        numbers: Sequence[Sequence[int] | None] | None = None,
    ) -> list[Score]:
        """Scores each response.

        Args:
            responses: N texts.
            references: N targets.
            numbers: N times those to be used; a response without gets NaN.

        Raises:
            SettingError: no problem has numbers.
        """
        if numbers is None:
            raise SettingError(
                "reward=countdown needs the numbers of each puzzle; choose data.path=countdown, or a file with a field "
                "of lists and +data.keep_fields=[numbers]."
            )
        return [self._score(*row) for row in zip(responses, references, numbers, strict=True)]

    def close(self) -> None:
        """Frees nothing: expressions are judged in this process, in linear time."""

    def _score(self, response: str, target: str, numbers: Sequence[int] | None) -> Score:
        wrong, correct = self.bounds
        answer = answer_of(response, self._reasoning_end)
        if numbers is None or not target.strip().lstrip("-").isdecimal():
            return Score(math.nan, False, answer, Verdict.UNPARSABLE_REFERENCE)
        if answer is None:
            return Score(wrong, False, None, Verdict.NO_ANSWER)
        if reaches(answer, int(target), numbers):
            return Score(correct, True, answer, Verdict.CORRECT)
        return Score(wrong, False, answer, Verdict.WRONG)


def reaches(answer: str, target: int, numbers: Sequence[int]) -> bool:
    """Says whether an expression has these numbers, each once, and this value."""
    expression = parse(answer)
    return expression is not None and Counter(expression.numbers) == Counter(numbers) and expression.value == target
