"""Times of day and ratios, mostly written with colons."""

import re
from dataclasses import dataclass

from sympy import Basic

from ngrpo.rewards.answers.latex import expression
from ngrpo.rewards.answers.scan import split
from ngrpo.rewards.answers.values import same_value

_TIME = re.compile(
    r"(?P<h>\d{1,2})(?::(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?)?"
    r"(?: ?(?:\\text ?\{ ?)?(?P<said>(?P<half>[ap])\.? ?m\.?|noon|o'clock)(?: ?\})?)?",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(?:^|:)0\d|[a-z]", re.IGNORECASE)  # no ratio is written so
_COLON = re.compile(r":|\\text ?\{ ?to ?\}|(?<= )to(?= )")


@dataclass(frozen=True)
class Time:
    """A time of day; ``half`` is "a" or "p", None if not said."""

    hour: int
    minute: int
    second: int
    half: str | None

    def equals(self, other: "Time") -> bool:
        """The same digits; a.m. and p.m. count only if both say it."""
        same_half = self.half is None or other.half is None or self.half == other.half
        return same_half and (self.hour, self.minute, self.second) == (other.hour, other.minute, other.second)


@dataclass(frozen=True)
class Ratio:
    """Two or more terms of a ratio."""

    terms: tuple[Basic, ...]

    def equals(self, other: "Ratio") -> bool:
        """Proportional terms: 1:2 is 2:4."""
        if len(self.terms) != len(other.terms):
            return False
        crossed = zip(self.terms, other.terms, strict=True)
        return all(same_value(a * other.terms[0], b * self.terms[0]) for a, b in crossed)


def read_time(text: str) -> Time | None:
    """Read a tidy text as a time of day."""
    match = _TIME.fullmatch(text)
    if match is None or not (match["m"] or match["said"]):
        return None
    return Time(int(match["h"]), int(match["m"] or 0), int(match["s"] or 0), match["half"] and match["half"].lower())


def read_ratio(text: str) -> Ratio | None:
    """Read a tidy text as a ratio of values other than zero; None for what can only be a time of day."""
    terms, colons = split(text, _COLON)
    if not colons or (_TIME.fullmatch(text) and _CLOCK.search(text)):
        return None
    values = [expression(term) for term in terms]
    return Ratio(tuple(value for value in values if value)) if all(values) else None
