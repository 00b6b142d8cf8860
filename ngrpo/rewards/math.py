"""The mathematics reward: the boxed answer, compared with the reference."""

import math
from collections.abc import Sequence

from ngrpo.errors import SettingError
from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.rewards.isolation.pool import Pair, VerifierPool
from ngrpo.rewards.unevaluated import Correct, echoes
from ngrpo.types.scores import Score, Verdict
from ngrpo.utils.optional_packages import require

_MOST_WORKERS = 1024
"""More than any machine has cores for; a slip of the keyboard must not start processes until it has no memory left."""


class MathReward:
    r"""Scores responses by their last ``\boxed{...}``.

    A response without a box is wrong (status ``no_answer``) whatever its reference. An answer that runs into
    the time limit, or ends the process that checks it, gets the reward of a wrong answer: a policy must not
    gain by writing what cannot be checked. An answer to an unusable reference gets NaN.

    Args:
        timeout_s: wall-clock seconds allowed for comparing one answer.
        workers: processes that compare answers.
        reasoning_end: the marker that closes a reasoning block; see `ngrpo.rewards.answers.boxed.answer_of`.
        correct: the reward of a correct answer.
        wrong: the reward of any other.
        require_evaluated: whether an unevaluated expression that stands in the question is no answer where the
            reference is a numeral; see `ngrpo.rewards.unevaluated`. It takes the questions.

    Attributes:
        bounds: the smallest and the largest reward.

    Raises:
        SettingError: a time limit or number of workers that cannot work, or rewards that do not prefer right answers.
    """

    def __init__(
        self,
        timeout_s: float = 5.0,
        workers: int = 2,
        reasoning_end: str | None = "</think>",
        correct: float = 1.0,
        wrong: float = 0.0,
        require_evaluated: bool = False,
    ) -> None:
        require("latex2sympy2_extended", "the mathematics reward", extra="math")
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise SettingError(f"reward.timeout_s is {timeout_s}; set a positive number of seconds, such as 5.")
        if not 1 <= workers <= _MOST_WORKERS:
            raise SettingError(f"reward.workers is {workers}; set it to at least 1 and at most {_MOST_WORKERS}.")
        for name, value in (("correct", correct), ("wrong", wrong)):
            if not math.isfinite(value):
                raise SettingError(f"reward.{name}={value} cannot be learned from; set a finite number.")
        if not correct > wrong:
            raise SettingError(
                f"reward.correct={correct} is not more than reward.wrong={wrong}, so that right answers would not be"
                " preferred; raise it, or lower the other."
            )
        self.bounds = (wrong, correct)
        self._pool = VerifierPool(workers, timeout_s)
        self._reasoning_end = reasoning_end
        self._require_evaluated = require_evaluated
        self._rewards = dict.fromkeys(Verdict, wrong) | {
            Verdict.CORRECT: correct,
            Verdict.UNPARSABLE_REFERENCE: math.nan,
        }

    def __call__(
        self, responses: Sequence[str], references: Sequence[str], questions: Sequence[str] | None = None
    ) -> list[Score]:
        """Score each response against the reference at the same place.

        Args:
            responses: N texts.
            references: N answers.
            questions: N texts, without which nothing is known to stand in a question.

        Raises:
            ValueError: they differ in length.
        """
        answers = [answer_of(response, self._reasoning_end) for response in responses]
        pairs = list(zip(references, answers, strict=True))
        stated = [(reference, answer) for reference, answer in pairs if answer is not None]
        verdicts: dict[tuple[str, str | None], Verdict] = dict(zip(stated, self._pool.judge(stated), strict=True))
        statuses = [verdicts.get(pair, Verdict.NO_ANSWER) for pair in pairs]
        if self._require_evaluated and questions is not None:
            statuses = self._without_echoes(statuses, references, answers, questions)
        return [self._score(answer, status) for answer, status in zip(answers, statuses, strict=True)]

    def try_out(self) -> None:
        """Judge an answer that is known to be right.

        Raises:
            SettingError: no process starts, or it does not find so; see `VerifierPool.try_out`.
        """
        self._pool.try_out()

    def close(self) -> None:
        """End the processes; a later call starts them again."""
        self._pool.close()

    def _without_echoes(
        self,
        statuses: Sequence[Verdict],
        references: Sequence[str],
        answers: Sequence[str | None],
        questions: Sequence[str],
    ) -> list[Verdict]:
        rows = [
            Correct(reference, answer, question) if status is Verdict.CORRECT and answer is not None else None
            for status, reference, answer, question in zip(statuses, references, answers, questions, strict=True)
        ]
        found = echoes((row for row in rows if row is not None), self._are_correct)
        return [Verdict.UNEVALUATED if row in found else status for row, status in zip(rows, statuses, strict=True)]

    def _are_correct(self, pairs: Sequence[Pair]) -> list[bool]:
        return [verdict is Verdict.CORRECT for verdict in self._pool.judge(pairs)]

    def _score(self, answer: str | None, status: Verdict) -> Score:
        stated = None if status is Verdict.UNEVALUATED else answer
        return Score(self._rewards[status], status is Verdict.CORRECT, stated, status)
