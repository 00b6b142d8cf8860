"""Problems that a source yields, and prompts that engines take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Reason = Literal[
    "missing_question",
    "question_not_text",
    "not_a_conversation",
    "refused_by_template",
    "invalid_characters",
    "control_tokens",
    "missing_answer",
    "answer_not_scalar",
    "no_box_in_solution",
    "missing_difficulty",
    "too_easy",
    "too_hard",
    "duplicate",
    "in_evaluation",
    "prompt_too_long",
]


Message = Mapping[str, str]
"""A message of a chat: its ``role`` (system, user, assistant or tool) and its ``content``."""


@dataclass(frozen=True)
class Problem:
    r"""A question with a verifiable answer.

    Attributes:
        key: identity within its source (row number, or the demo's problem number), in a mixture over all of them; never
            negative.
        question: the text shown to the model, before the chat template; of a conversation what user and assistant say
            in it.
        answer: the reference answer as text, e.g. ``"142"`` or ``"\frac{1}{2}"``.
        difficulty: as the data set declares it, on its own scale; None where it does not.
        messages: of a conversational prompt, the last one the user's; None where the prompt is the question.
        columns: further fields of the row, for rewards (``data.keep_fields``); plain values by name.
    """

    key: int
    question: str
    answer: str
    difficulty: float | None = None
    messages: tuple[Message, ...] | None = field(default=None, hash=False)
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The messages, or the question as that of the user."""
        return self.messages or ({"role": "user", "content": self.question},)


@dataclass(frozen=True)
class Prompt:
    """A problem after the chat template.

    Attributes:
        problem: where the prompt comes from.
        ids: token ids, the generation prompt included; shape [P].
        epoch: the pass over the source that it was drawn in, from 0.
        control_text: whether the question holds the text of a control token, which is then encoded as text.
    """

    problem: Problem
    ids: tuple[int, ...]
    epoch: int = 0
    control_text: bool = False


@dataclass(frozen=True)
class Excluded:
    """A row that is excluded from training or evaluation, and why."""

    reason: Reason


@dataclass(frozen=True, order=True)
class PassRate:
    """The success of the policy on one problem: the share of its scored rollouts that are right."""

    key: int
    rate: float


def _no_stream(count: int) -> list[Prompt]:
    raise RuntimeError(f"{count} further prompts are wanted of a batch that comes from no stream")


def _no_curriculum(rates: Sequence[PassRate]) -> None:
    pass


def _no_next_batch() -> "PromptBatch":
    raise RuntimeError("the next batch is wanted of one that comes from no stream")


class PromptBatch:
    """One rank's prompts of one training iteration.

    Not a dataclass: Lightning walks through dataclasses at device transfer, copies them and refuses frozen
    ones inside. This object reaches the callbacks and the training step as it left the loader.

    Attributes:
        prompts: this rank's share of the global batch; the rollout puts those that are trained on here.
        epoch: passes completed over every source when the global batch began.
        iteration: number of the global batch since the run began, from 0; continues after a resume.
        draw: takes as many further prompts as asked for from the stream and returns them all on every rank; every
            rank must ask for the same number. A checkpoint's position is behind them.
        report_pass_rates: tells the curriculum how the policy did, on every rank the same.
        peek_next: returns the batch that comes next, without moving the stream's state; its prompts are those that the
            stream hands out then.
        experience: what the rollout attaches; None until then.
        update: what the training step attaches (`ngrpo.training.samples.Update`); None until then.
    """

    def __init__(
        self,
        prompts: list[Prompt],
        epoch: int,
        iteration: int,
        draw: Callable[[int], list[Prompt]] = _no_stream,
        report_pass_rates: Callable[[Sequence[PassRate]], None] = _no_curriculum,
        peek_next: Callable[[], "PromptBatch"] = _no_next_batch,
    ) -> None:
        self.prompts = prompts
        self.epoch = epoch
        self.iteration = iteration
        self.draw = draw
        self.report_pass_rates = report_pass_rates
        self.peek_next = peek_next
        self.experience: Any = None
        self.update: Any = None
