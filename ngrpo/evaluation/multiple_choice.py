"""Multiple-choice problems: options in a fixed random order, answered by a letter."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from ngrpo.data.sources import Fields
from ngrpo.data.sources.base import Row
from ngrpo.data.sources.problem_text import is_text
from ngrpo.types.problems import Excluded, Problem

LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class MultipleChoice(Fields):
    """The names of the fields that hold the question, the right option (``answer``) and the wrong ones.

    The options' order is drawn from the row's number and question alone, so it is the same in every run; models prefer
    some letters, and data sets put the right option first.

    Attributes:
        wrong: fields of the wrong options.
    """

    wrong: tuple[str, ...] = ()

    def row(self, key: int, record: Mapping[str, Any]) -> Row:
        """Returns the question followed by a line an option, and the letter of the right one."""
        plain = super().row(key, record)
        if isinstance(plain, Excluded):
            return plain
        options = [plain.answer, *(str(record.get(name) or "").strip() for name in self.wrong)]
        if not all(options):
            return Excluded("missing_answer")
        if not all(map(is_text, options)):
            return Excluded("invalid_characters")
        order = list(range(len(options)))
        Random(f"{key}/{plain.question}").shuffle(order)
        lines = [f"{letter}) {options[place]}" for letter, place in zip(LETTERS, order, strict=False)]
        return Problem(key, "\n".join([plain.question, "", *lines]), LETTERS[order.index(0)], columns=plain.columns)
