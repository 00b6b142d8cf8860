"""Answers and their readings, and the equality of two answers.

One text may have several readings: ``(0,1)`` is a pair and an interval, ``100,200`` a number and a list. Two answers
are equal if a reading of one equals a reading of the other. Only readings of the same class are ever equal, so a pair
is no set and a closed interval no open one; the comparison is symmetric because that of each class is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

MAX_READINGS = 6


class SeveralValues(Exception):
    """The text states values that contradict each other, or more than one reading each: it is no answer."""


class Reading(Protocol):
    """One way to read an answer."""

    def equals(self, other: Self) -> bool:
        """Whether the two say the same; symmetric."""


@dataclass(frozen=True)
class Answer:
    """An answer and its readings.

    Attributes:
        literal: its text in one notation without spaces; the same text is the same answer.
        readings: what it can be read as; empty if only the text counts.
        name: what the readings are the value of, ``x`` in ``x = 5``; None if that is not said.
        relations: readings that name what they speak of themselves, such as the equation ``x = 5``.

    Raises:
        SeveralValues: more than `MAX_READINGS` readings.
    """

    literal: str
    readings: tuple[Reading, ...]
    name: str | None = None
    relations: tuple[Reading, ...] = ()

    def __post_init__(self) -> None:
        if len(self.readings) + len(self.relations) > MAX_READINGS:
            raise SeveralValues


Read = Callable[[str], Answer | None]


def equal(first: Answer, second: Answer) -> bool:
    """Whether two answers say the same. A name counts only if both have one: ``x=5`` is 5 but not ``y=5``."""
    if first.literal == second.literal:
        return True
    namesakes = first.name is None or second.name is None or first.name == second.name
    return _any_equal(first.relations, second.relations) or (namesakes and _any_equal(first.readings, second.readings))


def _any_equal(first: tuple[Reading, ...], second: tuple[Reading, ...]) -> bool:
    return any(a.equals(b) for a in first for b in second if type(a) is type(b))
