"""From a record of a data set to a problem."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ngrpo.data.sources.base import Row
from ngrpo.data.types import LeftOut, Problem
from ngrpo.errors import SettingError

_WHOLE_NUMBER = re.compile(r"([+-]?\d+)\.0+")


def normalise_answer(raw: object) -> str | None:
    """Return a reference answer as text: ``142.0`` and ``"142.0"`` become ``"142"``, other text is stripped.

    None stands for no answer: None, blank text, not-a-number, or what is no scalar (a list, a mapping).
    """
    if raw is None or isinstance(raw, Collection) and not isinstance(raw, str):
        return None
    text = str(raw).strip()
    if whole := _WHOLE_NUMBER.fullmatch(text):
        return str(int(whole[1]))
    return text if text and text.lower() != "nan" else None


@dataclass(frozen=True)
class Fields:
    """The names of the fields that hold the question and the answer."""

    question: str = "problem"
    answer: str = "answer"

    def row(self, key: int, record: Mapping[str, Any]) -> Row:
        """Return the problem in `record`, or why there is none."""
        question = record.get(self.question)
        if not isinstance(question, str) or not question.strip():
            return LeftOut("missing_question")
        answer = normalise_answer(record.get(self.answer))
        if answer is None:
            return LeftOut("missing_answer")
        return Problem(key, question.strip(), answer)

    def check(self, available: Collection[str], data: str) -> None:
        """Refuse names that the data does not have.

        Args:
            available: the field names found.
            data: the setting that names the data and its value, for the message.

        Raises:
            SettingError: naming the field's setting, its value and the names to choose from.
        """
        for setting, name in (("data.question_field", self.question), ("data.answer_field", self.answer)):
            if name not in available:
                raise SettingError(
                    f"{setting}={name!r} is no field of {data}; set it to one of: {', '.join(sorted(available))}."
                )
