r"""Limits on what is computed, however short it is to write: ``9^{9^{9^9}}`` or ``(10!)!``.

The time limit of the pool would end such a computation too, but at the price of a new process.
"""

from collections.abc import Callable

from sympy import Basic, Integer, Pow, Rational, factorial, factorial2

MAX_LENGTH = 2_000  # characters of an answer
MAX_EXPRESSION = 1_000  # characters of one expression in it
MAX_DEPTH = 20  # brackets around a token
MAX_ITEMS = 200  # entries of a list, a set or a matrix
_MAX_BITS = 200_000  # of a numerator or denominator
_MAX_EXPONENT = 10_000  # of anything that is not a number
_MAX_FACTORIAL = 5_000


class TooLarge(Exception):
    """The value is too large to be computed."""


def check(function: Callable[..., Basic], arguments: tuple[Basic, ...]) -> None:
    """Raise TooLarge if ``function(*arguments)`` is; its arguments have been checked and evaluated."""
    if function is Pow:
        _check_power(*arguments)
    elif function in (factorial, factorial2) and isinstance(arguments[0], Rational):
        _refuse(abs(arguments[0]) > _MAX_FACTORIAL)


def check_number(number: Basic) -> None:
    """Raise TooLarge for a rational number of too many digits."""
    _refuse(isinstance(number, Rational) and _bits(number) > _MAX_BITS)


def _check_power(base: Basic, exponent: Basic) -> None:
    if not isinstance(exponent, Rational):
        return
    if isinstance(base, Rational):
        trivial = base in (Integer(-1), Integer(0), Integer(1))
        _refuse(not trivial and abs(exponent) * _bits(base) > _MAX_BITS)
    else:
        _refuse(abs(exponent) > _MAX_EXPONENT)


def _bits(number: Rational) -> int:
    return max(int(number.p).bit_length(), int(number.q).bit_length())


def _refuse(condition: bool) -> None:
    if condition:
        raise TooLarge
