"""A value with or without a unit."""

from dataclasses import dataclass

from sympy import Basic, Integer

from ngrpo.rewards.answers.latex import expression
from ngrpo.rewards.answers.unit_names import split_scale
from ngrpo.rewards.answers.units import split_unit
from ngrpo.rewards.answers.values import same_value


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
        first, second = (side.value / Integer(100) if side.unit == "%" else side.value for side in (self, other))
        return "%" in (self.unit, other.unit) and self.unit != other.unit and same_value(first, second)


def read_quantity(text: str) -> Quantity | None:
    r"""Read a tidy text as a value with a unit; None if it is none.

    A unit may be written twice, ``\$5 \text{ dollars}``, or in two places, ``\$5 \text{ per pound}``; two units that
    contradict each other are none.
    """
    rest, unit = split_unit(text)
    inner, second = split_unit(rest) if unit else (rest, None)
    (scale, unit), (factor, second) = split_scale(unit), split_scale(second)
    value = expression(inner)
    return None if value is None else Quantity(value * scale * factor, _agreed(unit, second))


def _agreed(first: str | None, second: str | None) -> str | None:
    if first is not None and second is not None and second.startswith("/"):
        return first + second
    return second or first if None in (first, second) or first == second else None
