r"""Equations, inequalities and memberships: ``x = 5``, ``0 < x < 1``, ``x \in (0,1)``, ``2x + 4y = 3``."""

import re
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from sympy import Add, Basic, Complement, FiniteSet, Intersection, S, Set, Symbol, solve_univariate_inequality

from ngrpo.rewards.answers.approximations import APPROXIMATELY, read_approximation
from ngrpo.rewards.answers.assignments import with_components
from ngrpo.rewards.answers.collections import Ordered, Unordered
from ngrpo.rewards.answers.latex import expression
from ngrpo.rewards.answers.leads import introduces
from ngrpo.rewards.answers.names import bare, is_name
from ngrpo.rewards.answers.quantity import Quantity
from ngrpo.rewards.answers.reading import Answer, Read, SeveralValues, equal
from ngrpo.rewards.answers.regions import Region, region_of
from ngrpo.rewards.answers.scan import split
from ngrpo.rewards.answers.unit_names import plain
from ngrpo.rewards.answers.units import split_unit
from ngrpo.rewards.answers.values import free_symbol, proportional
from ngrpo.rewards.answers.words import Letter, Words, read_letter

_RELATION = re.compile(r"\\(?:le|ge|ne|in)(?![A-Za-z])|[<>=]")
_TWO_STATEMENTS = re.compile(r"-?[\d.]+ [A-Za-z]\w*")  # in "x = 7 y = 11"
_COMPARISONS = {"<": "__lt__", ">": "__gt__", r"\le": "__le__", r"\ge": "__ge__"}


@dataclass(frozen=True)
class Equation:
    """An equation, as left side minus right side."""

    difference: Basic

    def equals(self, other: "Equation") -> bool:
        """The same equation up to a factor."""
        return proportional(self.difference, other.difference)


@dataclass(frozen=True)
class Inequality:
    """An inequality in several unknowns, ``greater`` > 0 or, if not strict, >= 0."""

    greater: Basic
    strict: bool

    def equals(self, other: "Inequality") -> bool:
        """The same inequality up to a positive factor."""
        return self.strict == other.strict and proportional(self.greater, other.greater, positive=True)


def read_relation(text: str, read: Read) -> Answer | None:
    """Read a tidy text with a relation outside its brackets; None if it has none or cannot be read.

    Raises:
        SeveralValues: the sides of an equation or approximation contradict each other.
    """
    if APPROXIMATELY in text and (answer := read_approximation(text, read)) is not None:
        return answer
    sides, operators = split(text, _RELATION)
    if not operators or not all(sides):
        return None
    if set(operators) == {"="}:
        return _equation(sides, read)
    if operators == [r"\in"]:
        return _membership(sides[0], sides[1], read)
    return _inequality(sides, operators) if set(operators) <= set(_COMPARISONS) else None


def _equation(sides: list[str], read: Read) -> Answer | None:
    """An equation is also the value that it gives to a name, or the value of all sides of a chain."""
    first, last = sides[0], sides[-1]
    if is_name(last) and not is_name(first):
        first, last = last, first
    left, right = expression(first), expression(last)
    equations = () if left is None or right is None else (Equation(left - right),)
    condition = right == 0 and isinstance(left, Add)  # a + b = 0 is no name with a value
    named = is_name(first) and not condition
    valued = named or len(sides) > 2 or (_is_constant(left) and _is_constant(right))
    assigned = _named(first, read(last)) if valued else None
    if valued:
        _refuse_unequal(sides, read)
    if assigned is not None:
        return with_components(replace(assigned, relations=equations))
    return Answer("", (), None, equations) if equations else None


def _refuse_unequal(sides: list[str], read: Read) -> None:
    """Refuse a chain with a side that cannot be read, or with two that speak of the same symbols and differ."""
    answers = [read(side) for side in sides if not is_name(side)]
    known = [answer for answer in answers if answer is not None and answer.readings]
    chain = len(sides) > 2
    worded = any(r"\text" in split_unit(side)[0] for side in sides[1:-1] if not is_name(side))
    letters = read_letter(sides[-1]) and any(read_letter(side) for side in sides[:-1])
    if (
        letters
        or any(_TWO_STATEMENTS.fullmatch(side) for side in sides)
        or chain
        and (worded or len(known) < len(answers))
    ):
        raise SeveralValues
    name = expression(sides[0])
    if chain and any(name in _symbols(answer) for answer in known):  # "x = 7 - x = 11"
        raise SeveralValues
    for first, second in combinations(known, 2):
        if _symbols(first) == _symbols(second) and not equal(first, second):
            raise SeveralValues


def _symbols(answer: Answer) -> set[Basic]:
    values = [reading.value for reading in answer.readings if isinstance(reading, Quantity)]
    return set().union(*(value.free_symbols for value in values))


def _is_constant(side: Basic | None) -> bool:
    return side is not None and not side.free_symbols


def _named(name: str, answer: Answer | None) -> Answer | None:
    r"""Words in ``\text{}`` and sides that are no names say nothing about which unknown is meant.

    Only "answer" and the like is equal to a word or the letter of a choice; an unknown may be to the symbol C.

    Raises:
        SeveralValues: two words, or two letters of a choice, are said to be equal.
    """
    if answer is None:
        return None
    spoken = not is_name(name) or r"\text" in name
    readings = answer.readings
    if not introduces(plain(name)):
        if any(isinstance(r, Words) or (isinstance(r, Letter) and read_letter(name)) for r in readings):
            raise SeveralValues
        readings = tuple(reading for reading in readings if not isinstance(reading, Letter))
    return replace(answer, readings=readings, name=answer.name if spoken else bare(name))


def _membership(name: str, text: str, read: Read) -> Answer | None:
    if not is_name(name):
        return None
    answer = _named(name, read(text))
    sets = tuple(r for r in answer.readings if isinstance(r, (Region, Unordered, Ordered))) if answer else ()
    return replace(answer, readings=sets) if answer and sets else None


def read_exclusion(text: str, read: Read) -> Answer | None:
    r"""Read ``x \ne 3``, ``x \ne \pm 1`` and ``x \ne 1, 2``: all real numbers but the listed ones."""
    sides, operators = split(text, _RELATION)
    if operators != [r"\ne"] or not is_name(sides[0]):
        return None
    value = expression(sides[1])
    excluded = region_of(read(sides[1])) if value is None else FiniteSet(value)
    if not isinstance(excluded, FiniteSet) or excluded.is_empty:
        return None
    return Answer("", (Region(Complement(S.Reals, excluded)),), bare(sides[0]))


def _inequality(sides: list[str], operators: list[str]) -> Answer | None:
    values = [_side(side) for side in sides]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    symbol = free_symbol(*known)
    if symbol is None:
        return _in_several_unknowns(known, operators)
    steps = zip(pairwise(known), operators, strict=True)
    sets = [_solution(getattr(left, _COMPARISONS[operator])(right), symbol) for (left, right), operator in steps]
    return Answer("", (Region(Intersection(*sets)),), str(symbol))


def _side(text: str) -> Basic | None:
    """A value, or the symbol of that name for what only has a name, such as ``f(x)``."""
    value = expression(text)
    return Symbol(text.replace(" ", ""), real=True) if value is None and is_name(text) else value


def _solution(relation: Basic, symbol: Basic) -> Set:
    if relation in (S.true, S.false):
        return S.Reals if relation == S.true else S.EmptySet
    return solve_univariate_inequality(relation, symbol, relational=False)


def _in_several_unknowns(values: list[Basic], operators: list[str]) -> Answer | None:
    if len(values) != 2 or not values[0].free_symbols | values[1].free_symbols:
        return None
    left, right = values
    greater = left - right if operators[0] in (">", r"\ge") else right - left
    return Answer("", (), None, (Inequality(greater, operators[0] in "<>"),))
