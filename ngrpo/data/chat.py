"""The prompt of a problem, as token ids."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

from transformers import PreTrainedTokenizerBase

from ngrpo.data.chat_template import ChatFormat, check_chat_template, render
from ngrpo.data.control_tokens import ControlTokens
from ngrpo.types.problems import Excluded, Problem, Prompt

_MOST_CHARACTERS = 2**20
"""More than any context holds, and as much as is encoded in about a second."""

_NEUTRAL = "quokka forty"


@dataclass(frozen=True)
class PromptBuilder:
    """Applies the tokenizer's chat template, or the plain question where it has none.

    The text of control tokens in a question is encoded as text; in the system prompt and the instruction, which the
    user wrote, it stands for the tokens.

    Attributes:
        tokenizer: the model's tokenizer.
        max_prompt_tokens: longer prompts are excluded; a prompt is never cut, which would break the template.
        instruction: appended to the question after a line break, e.g. how to mark the final answer.
        chat: system message (which precedes the question where there is no template), and the template's variables.

    Raises:
        SettingError: the template cannot be used, see `ngrpo.data.chat_template.check_chat_template`.
    """

    tokenizer: PreTrainedTokenizerBase
    max_prompt_tokens: int
    instruction: str | None = None
    chat: ChatFormat = field(default_factory=ChatFormat)

    def __post_init__(self) -> None:
        check_chat_template(self.tokenizer, self.chat)

    def __call__(self, problem: Problem) -> Prompt | Excluded:
        """Return the prompt of `problem`, or why there is none."""
        if len(problem.question) > _MOST_CHARACTERS:
            return Excluded("prompt_too_long")
        ids: list[int] | None = self._ids(problem.question)
        forged = not self._is_own(ids)
        if forged:
            ids = self._ids_of_text(problem.question)
        if not self._is_own(ids):
            return Excluded("control_tokens")
        if len(ids) > self.max_prompt_tokens:
            return Excluded("prompt_too_long")
        return Prompt(problem, tuple(ids), control_text=forged)

    def _is_own(self, ids: list[int] | None) -> TypeGuard[list[int]]:
        """Whether a prompt has the control tokens that every prompt has, and no others."""
        return ids is not None and self._control.among(ids) == self._own_control

    def _ids(self, question: str) -> list[int]:
        text = self._text(question)
        if self.tokenizer.chat_template:
            # Without special tokens: the template has written its own BOS.
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids: list[int] = self.tokenizer(text)["input_ids"]
        # Keep the BOS of tokenizers that put one, but the answer is yet to come.
        return ids[:-1] if ids[-1] == self.tokenizer.eos_token_id else ids

    def _ids_of_text(self, question: str) -> list[int] | None:
        """The same, with what the question has of control tokens as text; None for tokenizers that cannot do it."""
        ids = self._control.encoded(self._text(self._control.broken(question)))
        return None if ids is None else [*self._opening, *ids]

    def _text(self, question: str) -> str:
        asked = f"{question}\n{self.instruction}" if self.instruction else question
        if self.tokenizer.chat_template:
            return render(self.tokenizer, asked, self.chat)
        return f"{self.chat.system_prompt}\n{asked}\n" if self.chat.system_prompt else f"{asked}\n"

    @cached_property
    def _control(self) -> ControlTokens:
        return ControlTokens(self.tokenizer)

    @cached_property
    def _own_control(self) -> Counter[int]:
        """The control tokens that are in every prompt."""
        return self._control.among(self._ids(_NEUTRAL))

    @cached_property
    def _opening(self) -> list[int]:
        """What this tokenizer puts before a plain text."""
        if self.tokenizer.chat_template:
            return []
        whole = self.tokenizer(_NEUTRAL)["input_ids"]
        bare = self.tokenizer(_NEUTRAL, add_special_tokens=False)["input_ids"]
        start = next(place for place in range(len(whole)) if whole[place : place + len(bare)] == bare)
        opening: list[int] = whole[:start]
        return opening
