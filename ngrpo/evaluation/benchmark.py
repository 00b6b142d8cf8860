"""A benchmark: its source of problems, the fields they are read from, and the prompt."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.chat_template import ChatFormat
from ngrpo.data.sources import Fields, open_source
from ngrpo.errors import SettingError
from ngrpo.evaluation.multiple_choice import LETTERS, MultipleChoice
from ngrpo.types.problems import Excluded, Prompt

log = logging.getLogger(__name__)

_ENDLESS = 10_000
"""Most rows that are read of a source, which may have no end."""


@dataclass(frozen=True)
class Asked:
    """What a benchmark comes to with a model's tokenizer.

    Attributes:
        prompts: of the usable rows.
        left_out: rows that are not, by reason.
    """

    prompts: list[Prompt]
    left_out: dict[str, int]


@dataclass(frozen=True)
class Benchmark:
    r"""Problems to evaluate on (``benchmark.<name>`` in the configuration).

    Attributes:
        path: "demo" or a family of it such as "demo:2-6@validation", files, or a hub data set
            ``org/name:configuration@split``; see `ngrpo.data.sources.open_source`.
        question_field: field of the question.
        answer_field: field of the reference answer; of the right option in a multiple-choice benchmark.
        wrong_fields: fields of the wrong options; with some the benchmark is a multiple choice by letters.
        problems: how many, the first rows; None for all (the demo, which has no end, needs a number).
        keep_fields: further fields, which rewards get by name.
        instruction: appended to each question; None takes the source's own (a boxed answer).
    """

    path: str | Sequence[str]
    question_field: str = "problem"
    answer_field: str = "answer"
    wrong_fields: Sequence[str] = ()
    problems: int | None = None
    keep_fields: Sequence[str] = ()
    instruction: str | None = None

    def __post_init__(self) -> None:
        if self.problems is not None and self.problems < 1:
            raise SettingError(f"benchmark: problems={self.problems} evaluates nothing; choose 1 or more, or null.")
        if len(self.wrong_fields) >= len(LETTERS):
            raise SettingError(
                f"benchmark: wrong_fields={list(self.wrong_fields)} makes more than {len(LETTERS)} options; name fewer."
            )

    def ask(self, name: str, tokenizer: Any, max_prompt_tokens: int, chat: ChatFormat) -> Asked:
        """Makes the prompts; rows that cannot be used are counted, in a warning too.

        Args:
            name: the benchmark's, for messages.
            tokenizer: the model's.
            max_prompt_tokens: longer prompts are excluded.
            chat: system message and the chat template's variables.

        Raises:
            SettingError: the source cannot be opened, or has no usable row.
        """
        setting = f"benchmark.{name}.path"
        source = open_source(self.path, "held_out", self._fields(), setting)
        if source.endless and self.problems is None:
            raise SettingError(f"benchmark.{name}.problems=null of the demo never ends; choose a number.")
        instruction = source.instruction if self.instruction is None else self.instruction
        build = PromptBuilder(tokenizer, max_prompt_tokens, instruction, chat)
        rows = islice(source.rows(), self.problems or _ENDLESS)
        items = [row if isinstance(row, Excluded) else build(row) for row in rows]
        left_out = Counter(item.reason for item in items if isinstance(item, Excluded))
        if left_out:
            log.warning("%s=%s: rows left out: %s", setting, self.path, dict(left_out))
        prompts = [item for item in items if isinstance(item, Prompt)]
        if not prompts:
            raise SettingError(
                f"{setting}={self.path} has no usable row ({dict(left_out) or 'it is empty'}); raise "
                f"data.max_prompt_tokens, or point benchmark.{name}.question_field and answer_field at filled fields."
            )
        return Asked(prompts, {str(reason): count for reason, count in left_out.items()})

    def _fields(self) -> Fields:
        if self.wrong_fields:
            wrong = tuple(self.wrong_fields)
            return MultipleChoice(self.question_field, self.answer_field, keep=tuple(self.keep_fields), wrong=wrong)
        return Fields(self.question_field, self.answer_field, keep=tuple(self.keep_fields))
