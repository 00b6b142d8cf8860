"""Arithmetic expressions: their exact value, the numbers in them, and one form for all that do the same."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

MAX_TOKENS = 200
"""Most numbers, operators and brackets of an expression; what is longer is none."""

_TOKEN = re.compile(r"\s*(?:(?P<number>\d{1,9})(?!\d)|(?P<sign>[-+*/()]))", re.ASCII)
_SIGNS: Mapping[str, str] = {
    "\u2212": "-", "\u2013": "-", "\u00d7": "*", "\u00b7": "*", "\u22c5": "*", "\u00f7": "/",
    r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": "",
}  # fmt: skip
_OTHER_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))


class Expression(Protocol):
    """A number, or an operation on two expressions."""

    @property
    def value(self) -> Fraction | None:
        """The exact value; None where it divides by zero."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in it, in order."""

    @property
    def form(self) -> str:
        """A text that is the same for expressions that differ in order and brackets of sums and products only."""


@dataclass(frozen=True)
class Number:
    """A number as it was given."""

    number: int

    @property
    def value(self) -> Fraction:
        """The number."""
        return Fraction(self.number)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number alone."""
        return (self.number,)

    @property
    def form(self) -> str:
        """The number in digits."""
        return str(self.number)


_APPLY: Mapping[str, Callable[[Fraction, Fraction], Fraction | None]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right if right else None,
}
_BACK: Mapping[str, str] = {"+": "-", "-": "+", "*": "/", "/": "*"}
_KIND: Mapping[str, str] = {"+": "+", "-": "+", "*": "*", "/": "*"}


@dataclass(frozen=True)
class Operation:
    """``left sign right``."""

    left: Expression
    sign: str
    right: Expression

    @cached_property
    def value(self) -> Fraction | None:
        """The exact value; None where it divides by zero."""
        left, right = self.left.value, self.right.value
        return None if left is None or right is None else _APPLY[self.sign](left, right)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in it, in order."""
        return self.left.numbers + self.right.numbers

    @cached_property
    def form(self) -> str:
        """The terms of a sum, or the factors of a product, sorted, those that are added or multiplied first."""
        first = _KIND[self.sign]
        parts = sorted((sign != first, sign, part.form) for sign, part in _parts(self, first, first))
        return "(" + "".join(f"{sign}{form}" for _, sign, form in parts) + ")"


def _parts(expression: Expression, kind: str, sign: str) -> Iterator[tuple[str, Expression]]:
    """Yields the terms of a sum, or the factors of a product, with the sign that each of them has."""
    if not isinstance(expression, Operation) or _KIND[expression.sign] != kind:
        yield sign, expression
        return
    yield from _parts(expression.left, kind, sign)
    yield from _parts(expression.right, kind, expression.sign if sign == kind else _BACK[expression.sign])


def parse(text: str) -> Expression | None:
    r"""Reads an expression of whole numbers, ``+ - * /`` and brackets; other signs for them, as ``\times``, too.

    Time is linear in the length, and the depth of brackets is limited by `MAX_TOKENS`.

    Returns:
        None for anything else.
    """
    plain = _OTHER_SIGN.sub(lambda found: _SIGNS[found[0]], text)
    tokens = _tokens(plain)
    if tokens is None:
        return None
    reader = _Reader(tokens)
    made = reader.sum()
    return made if reader.at == len(tokens) else None


def _tokens(text: str) -> list[str] | None:
    tokens: list[str] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) == MAX_TOKENS:
            return None
        tokens.append(found["number"] or found["sign"])
        at = found.end()
    return tokens


class _Reader:
    """A parser by recursive descent; products bind closer than sums, and both to the left."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def sum(self) -> Expression | None:
        """Reads terms."""
        return self._chain("+-", self._product)

    def _product(self) -> Expression | None:
        return self._chain("*/", self._factor)

    def _chain(self, signs: str, part: Callable[[], Expression | None]) -> Expression | None:
        made = part()
        while made is not None and self._next() in tuple(signs):
            sign = self._take()
            right = part()
            made = None if right is None else Operation(made, sign, right)
        return made

    def _factor(self) -> Expression | None:
        token = self._next()
        if token == "(":
            self._take()
            made = self.sum()
            return made if made is not None and self._next() == ")" and self._take() else None
        return Number(int(self._take())) if token is not None and token.isdecimal() else None

    def _next(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]
