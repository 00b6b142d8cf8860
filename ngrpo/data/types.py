"""What a source yields and what the engines take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A question with a verifiable answer.

    Attributes:
        key: identity within its source (row number, or the demo's problem number); never negative.
        question: the text shown to the model, before the chat template.
        answer: the reference answer as text, e.g. ``"142"`` or ``"\\\\frac{1}{2}"``.
    """

    key: int
    question: str
    answer: str


@dataclass(frozen=True)
class Prompt:
    """A problem after the chat template.

    Attributes:
        problem: where the prompt comes from.
        ids: token ids, the generation prompt included; shape [P].
    """

    problem: Problem
    ids: tuple[int, ...]
