"""A value with or without a unit."""

import re
from dataclasses import dataclass

from sympy import Basic, Integer

from ngrpo.rewards.answers.latex import expression
from ngrpo.rewards.answers.unit_names import split_scale
from ngrpo.rewards.answers.units import split_unit
from ngrpo.rewards.answers.values import same_value

_QUOTIENT = re.compile(r"\\frac|/")


@dataclass(frozen=True)
class Quantity:
    """A number or expression; ``unit`` is None if none is written."""

    value: Basic
    unit: str | None = None

    def equals(self, other: "Quantity") -> bool:
        r"""Equal values; two units must agree, and 50\% is both 50 and 1/2."""
        if self.unit is not None and other.unit is not None and self.unit != other.unit:
            return False
        if same_value(self.value, other.value):
            return True
        # At most one of them has a percent sign to be taken at its word, or both would have had equal values.
        if "%" not in (self.unit, other.unit) or self.unit == other.unit:
            return False
        first, second = (side.value / Integer(100) if side.unit == "%" else side.value for side in (self, other))
        several = first.is_Integer and first not in (Integer(0), Integer(1))  # 200\% stands for 200 and not for 2
        return not several and same_value(first, second)


def read_quantity(text: str) -> Quantity | None:
    r"""Read a tidy text as a value with a unit; None if it is none.

    A unit may be written twice, ``\$5 \text{ dollars}``, or in two places, ``\$5 \text{ per pound}``; two units that
    contradict each other are none. The percent sign of a proper fraction, ``\frac{1}{2}\%``, is never left out.
    """
    rest, unit = split_unit(text)
    inner, second = split_unit(rest) if unit else (rest, None)
    (scale, unit), (factor, second) = split_scale(unit), split_scale(second)
    value = expression(inner)
    if value is None:
        return None
    if unit == "%" and value.is_Rational and abs(value) < 1 and _QUOTIENT.search(inner):
        value, unit = value / Integer(100), None
    return Quantity(value * scale * factor, _agreed(unit, second))


def _agreed(first: str | None, second: str | None) -> str | None:
    if first is not None and second is not None and second.startswith("/"):
        return first + second
    return second or first if None in (first, second) or first == second else None
