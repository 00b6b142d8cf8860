"""The score of a response: its reward, and the verdict on its answer."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The outcome of judging one answer against its reference.

    Attributes:
        CORRECT: the answer equals the reference.
        WRONG: it does not, or this cannot be shown.
        UNPARSABLE_REFERENCE: the reference is not something an answer can be compared with.
        TIMEOUT: the comparison ran past the time limit and was killed.
        CRASHED: the comparison ran out of memory, or ended its process twice.
        NO_ANSWER: the response states no answer.
        UNEVALUATED: the answer repeats an expression of the question where a number is asked for; it is none.
        UNGRADED: a judge that was asked for a grade gave none.
    """

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE_REFERENCE = "unparsable_reference"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NO_ANSWER = "no_answer"
    UNEVALUATED = "unevaluated"
    UNGRADED = "ungraded"


@dataclass(frozen=True)
class Score:
    """The reward of one response and where it comes from.

    Attributes:
        reward: the reward; NaN where the reference cannot be used, so that the sample must be masked.
        correct: whether the answer equals the reference.
        answer: the content of the last box; None without one, where it is too long, or where it is unevaluated.
        status: the verdict; timeouts and crashes get the reward of a wrong answer and are visible here.
    """

    reward: float
    correct: bool
    answer: str | None
    status: Verdict
