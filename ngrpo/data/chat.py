"""The prompt of a problem, as token ids."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

from transformers import PreTrainedTokenizerBase

from ngrpo.data.chat_template import ChatFormat, check_chat_template, render
from ngrpo.data.control_tokens import ControlTokens
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Message, Problem, Prompt

_MOST_CHARACTERS = 2**20
"""More than any context holds, and as much as is encoded in about a second."""

_NEUTRAL = "quokka forty"


@dataclass(frozen=True)
class PromptBuilder:
    """Applies the tokenizer's chat template, or the plain question where it has none.

    The text of control tokens in a question, or a message, is encoded as text; in the system prompt and the
    instruction, which the user wrote, it stands for the tokens.

    Attributes:
        tokenizer: the model's tokenizer.
        max_prompt_tokens: longer prompts are excluded; a prompt is never cut, which would break the template.
        instruction: appended to the question, or the last message, after a line break, e.g. how to mark the answer.
        chat: system message (which precedes the question where there is no template), and the template's variables.
            That of a conversation stands in its place.

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
        conversation = problem.conversation
        if sum(len(message["content"]) for message in conversation) > _MOST_CHARACTERS:
            return Excluded("prompt_too_long")
        try:
            own_control = self._own_control(conversation)
            ids: list[int] | None = self._ids(conversation)
        except SettingError:
            if problem.messages is None:
                raise
            return Excluded("refused_by_template")
        forged = not self._is_own(ids, own_control)
        if forged:
            ids = self._ids_of_text(conversation)
        if not self._is_own(ids, own_control):
            return Excluded("control_tokens")
        if len(ids) > self.max_prompt_tokens:
            return Excluded("prompt_too_long")
        return Prompt(problem, tuple(ids), control_text=forged)

    def _is_own(self, ids: list[int] | None, own_control: Counter[int]) -> TypeGuard[list[int]]:
        """Whether a prompt has the control tokens that every prompt of its roles has, and no others."""
        return ids is not None and self._control.among(ids) == own_control

    def _ids(self, conversation: Sequence[Message]) -> list[int]:
        text = self._text(conversation)
        if self.tokenizer.chat_template:
            # Without special tokens: the template has written its own BOS.
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids: list[int] = self.tokenizer(text)["input_ids"]
        # Keep the BOS of tokenizers that put one, but the answer is yet to come.
        return ids[:-1] if ids[-1] == self.tokenizer.eos_token_id else ids

    def _ids_of_text(self, conversation: Sequence[Message]) -> list[int] | None:
        """The same, with what messages have of control tokens as text; None for tokenizers that cannot do it."""
        broken = [{**message, "content": self._control.broken(message["content"])} for message in conversation]
        ids = self._control.encoded(self._text(broken))
        return None if ids is None else [*self._opening, *ids]

    def _text(self, conversation: Sequence[Message]) -> str:
        *before, last = conversation
        content = f"{last['content']}\n{self.instruction}" if self.instruction else last["content"]
        asked = [*before, {**last, "content": content}]
        if self.tokenizer.chat_template:
            return render(self.tokenizer, asked, self.chat)
        return "".join(f"{message['content']}\n" for message in self.chat.messages(asked))

    @cached_property
    def _control(self) -> ControlTokens:
        return ControlTokens(self.tokenizer)

    def _own_control(self, conversation: Sequence[Message]) -> Counter[int]:
        """The control tokens that are in every prompt of the same roles."""
        roles = tuple(message["role"] for message in conversation)
        if roles not in self._control_by_roles:
            neutral = [{"role": role, "content": _NEUTRAL} for role in roles]
            self._control_by_roles[roles] = self._control.among(self._ids(neutral))
        return self._control_by_roles[roles]

    @cached_property
    def _control_by_roles(self) -> dict[tuple[str, ...], Counter[int]]:
        return {}

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
