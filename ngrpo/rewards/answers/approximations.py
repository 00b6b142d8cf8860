r"""Approximations, ``\sqrt{2} \approx 1.414``: the left side rounded to the digits written on the right."""

import re
from dataclasses import replace

from sympy import Basic, Integer, Rational

from ngrpo.rewards.answers.names import bare, is_name
from ngrpo.rewards.answers.quantity import Quantity
from ngrpo.rewards.answers.rationals import rational
from ngrpo.rewards.answers.reading import Answer, Read, SeveralValues
from ngrpo.rewards.answers.scan import split
from ngrpo.rewards.answers.units import split_unit

APPROXIMATELY = r"\approx"
_SIGN = re.compile(r"\\approx(?![A-Za-z])")
_WRITTEN = re.compile(r"-? ?\d[\d, ]*(?:\.(?P<part>\d+))?(?: ?\\(?:times|cdot) ?10 ?\^ ?\{(?P<power>[-+]?\d{1,3})\})?")


def read_approximation(text: str, read: Read) -> Answer | None:
    """Read a value with what it is rounded to, both of which are stated; of a name, or of nothing, the rounded value.

    Returns:
        The answer; None where no approximation stands outside the brackets.

    Raises:
        SeveralValues: the right side is not the left one rounded to the digits written, or there are several.
    """
    sides, signs = split(text, _SIGN)
    if not signs:
        return None
    if len(_SIGN.findall(text)) > 1:
        raise SeveralValues
    exact, rounded = sides
    near = read(rounded)
    if near is None or not any(isinstance(r, Quantity) and not r.value.free_symbols for r in near.readings):
        raise SeveralValues
    if not exact or is_name(exact):
        return replace(near, name=near.name or bare(exact)) if exact else near
    value = read(exact)
    if value is None:
        raise SeveralValues
    return replace(value, readings=value.readings + _rounded(value, near, rounded))


def is_rounding(value: Basic, written: str) -> bool:
    """Whether a tidy decimal is at most half a unit of its last digit away from a value.

    Args:
        value: an evaluated expression; one that is no real number is rounded to nothing.
        written: the decimal, without a unit.
    """
    match, number = _WRITTEN.fullmatch(written.strip()), rational(written)
    if match is None or number is None or not value.is_real or value.free_symbols:
        return False
    places = len(match["part"] or "") - int(match["power"] or 0)
    return bool(abs(value - number) <= Rational(1, 2) * Rational(10) ** -places)


def _rounded(exact: Answer, near: Answer, written: str) -> tuple[Quantity, ...]:
    amount, unit = split_unit(written)
    exacts, nears = ([r for r in side.readings if isinstance(r, Quantity)] for side in (exact, near))
    if len(exacts) != 1 or len(nears) != 1 or not {exacts[0].unit, unit} <= {unit, None, "%"}:
        raise SeveralValues
    share = unit == "%" and exacts[0].unit != "%"
    if not is_rounding(exacts[0].value * (Integer(100) if share else 1), amount):
        raise SeveralValues
    return (nears[0],)
