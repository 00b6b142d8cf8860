"""What a source yields and what the engines take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["missing_question", "missing_answer", "prompt_too_long"]


@dataclass(frozen=True)
class Problem:
    r"""A question with a verifiable answer.

    Attributes:
        key: identity within its source (row number, or the demo's problem number); never negative.
        question: the text shown to the model, before the chat template.
        answer: the reference answer as text, e.g. ``"142"`` or ``"\frac{1}{2}"``.
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
        epoch: the pass over the source that it was drawn in, from 0.
    """

    problem: Problem
    ids: tuple[int, ...]
    epoch: int = 0


@dataclass(frozen=True)
class LeftOut:
    """A row that cannot be trained on, and why."""

    reason: Reason


def _no_stream(count: int) -> list[Prompt]:
    raise RuntimeError(f"{count} further prompts are wanted of a batch that comes from no stream")


class PromptBatch:
    """One rank's prompts of one training iteration.

    Not a dataclass: Lightning walks through dataclasses at device transfer, copies them and refuses frozen
    ones inside. This object reaches the callbacks and the training step as it left the loader.

    Attributes:
        prompts: this rank's share of the global batch; the rollout puts those that are trained on here.
        epoch: the pass over the source that the global batch began in, from 0.
        iteration: number of the global batch since the run began, from 0; goes on after a resume.
        draw: takes as many further prompts as asked for from the stream and returns them all on every rank; every
            rank must ask for the same number. A checkpoint's position is behind them.
        experience: what the rollout attaches; None until then.
    """

    def __init__(
        self, prompts: list[Prompt], epoch: int, iteration: int, draw: Callable[[int], list[Prompt]] = _no_stream
    ) -> None:
        self.prompts = prompts
        self.epoch = epoch
        self.iteration = iteration
        self.draw = draw
        self.experience: Any = None
