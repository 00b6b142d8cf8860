r"""Sets of real numbers: intervals, their unions, ``\mathbb{R}`` without some points, solutions of inequalities."""

import re
from dataclasses import dataclass
from functools import reduce

from sympy import Complement, EmptySet, FiniteSet, Intersection, Interval, S, Set, Union, oo

from ngrpo.rewards.answers.collections import Unordered
from ngrpo.rewards.answers.latex import expression
from ngrpo.rewards.answers.quantity import Quantity
from ngrpo.rewards.answers.reading import Answer, Read
from ngrpo.rewards.answers.scan import split
from ngrpo.rewards.answers.values import same_value

_INTERVAL = re.compile(r"([(\[\]])(.+)([)\]\[])")
_COMMA = re.compile("[,;]")
_OPERATOR = re.compile(r"\\(?:cup|cap|setminus)(?![A-Za-z])|(?<=\\mathbb\{R\}) ?- ?(?=\\\{)")
_OPERATIONS = {r"\cup": Union, r"\cap": Intersection, r"\setminus": Complement, "-": Complement}
_NAMED = {r"\mathbb{R}": S.Reals, r"\Reals": S.Reals, r"\R": S.Reals, r"\emptyset": EmptySet, r"\{\}": EmptySet}
_PHRASES = dict.fromkeys(("all real numbers", "all reals", "real numbers"), S.Reals)
_PHRASES |= dict.fromkeys(("no solution", "no real solution", "empty set"), EmptySet)


@dataclass(frozen=True)
class Region:
    """A set of real numbers."""

    region: Set

    def equals(self, other: "Region") -> bool:
        """The same pieces with equal ends, open and closed alike."""
        if self.region == other.region:
            return True
        first, second = pieces(self.region), pieces(other.region)
        return len(first) == len(second) > 0 and all(map(_same_piece, first, second))


def pieces(region: Set) -> list[Interval | FiniteSet]:
    """The intervals and points of a set, from left to right; empty if it has others."""
    parts = region.args if isinstance(region, Union) else (region,)
    points = [FiniteSet(point) for part in parts if isinstance(part, FiniteSet) for point in part.args]
    intervals = [Interval(-oo, oo) if part == S.Reals else part for part in parts if not isinstance(part, FiniteSet)]
    if not all(isinstance(part, Interval) for part in intervals):
        return []
    if region.free_symbols:  # cannot be put in order
        return intervals if len(parts) == 1 else []
    return sorted([*intervals, *points], key=lambda piece: (float(piece.inf), float(piece.sup)))


def read_region(text: str, read: Read) -> Region | None:
    r"""Read an interval, a named set, or sets joined by ``\cup``, ``\cap`` and ``\setminus`` from left to right."""
    parts, operators = split(text, _OPERATOR)
    if not operators:
        region = _one(text)
        return None if region is None else Region(region)
    sets = [region_of(read(part)) for part in parts]
    known = [part for part in sets if part is not None]
    if len(known) < len(sets):
        return None
    steps = zip(operators, known[1:], strict=True)
    return Region(reduce(lambda left, step: _OPERATIONS[step[0]](left, step[1]), steps, known[0]))


def read_named_region(phrase: str) -> Region | None:
    """Read "all real numbers" and "no solution"."""
    named = _PHRASES.get(phrase)
    return None if named is None else Region(named)


def region_of(answer: Answer | None) -> Set | None:
    """The set of real numbers that an answer says: a region, or the listed numbers; None for others."""
    for reading in answer.readings if answer else ():
        if isinstance(reading, Region):
            return reading.region
        if isinstance(reading, Unordered) and all(_number(item) is not None for item in reading.items):
            return FiniteSet(*(_number(item) for item in reading.items))
    return None


def _number(answer: Answer) -> object:
    values = [reading.value for reading in answer.readings if isinstance(reading, Quantity)]
    return values[0] if values and values[0].is_extended_real else None


def _one(text: str) -> Set | None:
    if (named := _NAMED.get(text.replace(" ", ""))) is not None:
        return named
    match = _INTERVAL.fullmatch(text)
    ends = split(match[2], _COMMA)[0] if match else []
    if match is None or len(ends) != 2:
        return None
    start, end = (expression(side) for side in ends)
    if start is None or end is None or not (start.is_extended_real and end.is_extended_real):
        return None
    interval = Interval(start, end, match[1] != "[", match[3] != "]")
    return interval if isinstance(interval, Interval) else None


def _same_piece(first: Interval | FiniteSet, second: Interval | FiniteSet) -> bool:
    if type(first) is not type(second):
        return False
    ends = same_value(first.inf, second.inf) and same_value(first.sup, second.sup)
    if isinstance(first, FiniteSet):
        return ends
    return ends and (first.left_open, first.right_open) == (second.left_open, second.right_open)
