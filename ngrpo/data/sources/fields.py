"""The fields of a data set's records, read as problems."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from ngrpo.data.sources.base import Row
from ngrpo.data.sources.conversation import read_messages, spoken
from ngrpo.data.sources.problem_text import is_text
from ngrpo.errors import SettingError
from ngrpo.rewards.answers.boxed import last_boxed
from ngrpo.types.problems import Excluded, Problem

RESERVED = ("completions", "prompts", "answer", "questions")
"""Names under which rewards get something else than a field that is kept."""

_WHOLE_NUMBER = re.compile(r"\+?(-?)0*(\d+)\.0+")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def normalise_answer(raw: object) -> str | None:
    """Return a reference answer as text: ``142.0`` and ``"142.0"`` become ``"142"``, other text is stripped.

    None stands for no answer: None, blank text, a number that is not finite, or what is no scalar (a list, a mapping).
    """
    if raw is None or _is_compound(raw) or not _is_finite(raw):
        return None
    text = str(raw).strip()
    if whole := _WHOLE_NUMBER.fullmatch(text):
        return whole[1] + whole[2] if whole[2] != "0" else "0"
    return text if text and text.lower() != "nan" else None


def _is_finite(raw: object) -> bool:
    """Whether it is no number, or a finite one; also of NumPy's and of decimals."""
    try:
        return not isinstance(raw, Real | Decimal) or math.isfinite(raw)
    except (OverflowError, ValueError):  # a whole number beyond floats; a signalling NaN, whose text is none of nan
        return True


def read_difficulty(raw: object) -> float | None:
    """Return a declared difficulty as a number: ``4.5`` and ``"4.5"``, and ``"Level 4"`` as 4; None where none is."""
    if isinstance(raw, str) and (number := _NUMBER.search(raw)):
        raw = float(number[0])
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        value = float(raw)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Returns a field's value as text, numbers, lists and dictionaries, which a checkpoint may hold."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if _is_compound(value) and not isinstance(value, bytes) else str(value)


def _is_compound(raw: object) -> bool:
    return isinstance(raw, Collection) and not isinstance(raw, str)


@dataclass(frozen=True)
class Fields:
    """The names of the fields that make a problem.

    Attributes:
        question: text, or a conversation: a list of messages with ``role`` and ``content``.
        answer: text or a number.
        solution: text whose last box is the answer where there is none; None looks into no solution.
        difficulty: a number, or text with one.
        difficulty_required: whether rows without a difficulty are excluded.
        keep: further fields, for rewards.
        solution_required: whether a solution that is named must be there beside the answer.
    """

    question: str = "problem"
    answer: str = "answer"
    solution: str | None = None
    difficulty: str = "difficulty"
    difficulty_required: bool = False
    keep: tuple[str, ...] = ()
    solution_required: bool = True

    def row(self, key: int, record: Mapping[str, Any]) -> Row:
        """Return the problem in `record`, or why there is none."""
        question = record.get(self.question)
        messages = None
        if isinstance(question, list | tuple) and any(isinstance(one, Mapping) for one in question):
            messages = read_messages(question)
            if messages is None:
                return Excluded("not_a_conversation")
            question = spoken(messages)
        if question is not None and not isinstance(question, str):
            return Excluded("question_not_text")
        if not question or not question.strip():
            return Excluded("missing_question")
        if not is_text(question) or not all(is_text(message["content"]) for message in messages or ()):
            return Excluded("invalid_characters")
        answer = self._answer(record)
        if isinstance(answer, Excluded):
            return answer
        if not is_text(answer):
            return Excluded("invalid_characters")
        difficulty = read_difficulty(record.get(self.difficulty))
        if difficulty is None and self.difficulty_required:
            return Excluded("missing_difficulty")
        columns = {name: plain(record.get(name)) for name in self.keep}
        return Problem(key, question.strip(), answer, difficulty, messages, columns)

    def _answer(self, record: Mapping[str, Any]) -> str | Excluded:
        raw = record.get(self.answer)
        if _is_compound(raw):
            return Excluded("answer_not_scalar")
        answer = normalise_answer(raw)
        solution = record.get(self.solution) if self.solution else None
        if answer is None and isinstance(solution, str) and solution.strip():
            return last_boxed(solution) or Excluded("no_box_in_solution")
        return answer or Excluded("missing_answer")

    def unkept(self, available: Collection[str]) -> tuple[str, ...]:
        """Returns those of the field names found that rewards do not get."""
        known = (self.question, self.answer, *self.keep)
        return tuple(sorted(name for name in available if name not in known))

    def check(self, available: Collection[str], data: str, prefix: str = "data") -> None:
        """Refuse names that the data does not have; where there is a solution, there need be no answer.

        Args:
            available: the field names found.
            data: the setting that names the data and its value, for the message.
            prefix: where the settings of the fields stand, for the message.

        Raises:
            SettingError: naming the field's setting, its value and the names to choose from.
        """
        needed = {"question_field": self.question}
        if self.solution not in available:
            needed["answer_field"] = self.answer
        if self.solution is not None and self.solution_required and self.answer in available:
            needed["solution_field"] = self.solution
        if self.difficulty_required:
            needed["difficulty_field"] = self.difficulty
        for name in self.keep:
            if name in RESERVED:
                raise SettingError(
                    f"{prefix}.keep_fields={list(self.keep)} keeps {name!r}, under which rewards get something else; "
                    "rename the field in the data, or take it out."
                )
            if name not in available:
                raise SettingError(
                    f"{prefix}.keep_fields={list(self.keep)} names {name!r}, which is no field of {data}; it has: "
                    f"{', '.join(sorted(available))}."
                )
        for setting, name in needed.items():
            if name not in available:
                raise SettingError(
                    f"{prefix}.{setting}={name!r} is no field of {data}; set it to one of:"
                    f" {', '.join(sorted(available))}{self._way_out(setting, prefix)}."
                )

    def _way_out(self, setting: str, prefix: str) -> str:
        found = f" ({prefix}.solution_field={self.solution!r} names none either)" if self.solution else ""
        return f", or {prefix}.solution_field to one with boxed answers{found}" if setting == "answer_field" else ""
