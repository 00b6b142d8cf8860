r"""The equality of two expressions by value.

Rational numbers compare exactly. Other numbers are the same if they agree in 50 digits, and then in so many that
numbers written with so few cannot be close by chance, up to 20,000: 1.41421356 is not the square root of two,
``10^{-9}`` is not 0, and ``\sqrt{10^{120}+1}`` is not ``10^{60}``. Expressions with symbols are the same if they agree
at a few rational points, some with negative coordinates: two different elementary expressions do so only by
construction. A point where one of them is not real is passed over, unless they have the imaginary unit in them:
logarithms compare where they are defined.
"""

from collections.abc import Iterator
from itertools import product

from sympy import (
    Abs,
    Basic,
    I,
    Integer,
    Integral,
    Limit,
    Max,
    Min,
    Mod,
    Pow,
    Product,
    Rational,
    Sum,
    Symbol,
    ceiling,
    floor,
    nan,
    oo,
    sign,
    simplify,
    zoo,
)
from sympy.core.function import Derivative
from sympy.polys.rationaltools import together
from sympy.simplify.radsimp import fraction

_DIGITS = 60
_MAX_DIGITS = 20_000
_TOLERANCE = Rational(1, 10**50)  # below, a number is compared with zero
_COORDINATES = (Rational(7, 3), Rational(13, 5), Rational(19, 11), Rational(29, 17), Rational(37, 23), Rational(5, 7))
_SIGNS = ((1, 1, 1), (1, 1, 1), (-1, 1, -1), (1, -1, -1), (-1, -1, 1))
_PIECEWISE = (Abs, floor, ceiling, Max, Min, Mod, sign)  # the same near 0, perhaps, but not far from it
_SCALES = (1, 1009, Rational(1, 1009), 10**6 + 3)
_MAX_SYMBOLS = 20


def same_value(first: Basic, second: Basic) -> bool:
    """Whether two evaluated expressions are the same number, or the same function of their symbols."""
    if first == second:
        return True
    if isinstance(first, Rational) and isinstance(second, Rational):
        return False
    first, second = _done(first), _done(second)
    symbols = first.free_symbols | second.free_symbols
    if not symbols:
        return _same_number(first, second)
    points = _both_at_points((first, second), symbols)
    if (start := next(points, None)) is None:
        return bool(simplify(first - second) == 0)
    return _same_number(*start) and all(_same_number(a, b) for a, b in points)


def proportional(first: Basic, second: Basic, positive: bool = False) -> bool:
    """Whether one expression is the other times a number, neither of them zero: the same equation ``= 0``.

    Denominators are multiplied out first, so ``y - 1/x`` is proportional to ``xy - 1``, unless ``positive``
    asks for a positive factor, the same inequality ``> 0``.
    """
    if not positive:
        first, second = (fraction(together(_done(side)))[0] for side in (first, second))
    symbols = first.free_symbols | second.free_symbols
    points = [pair for pair in _both_at_points((first, second), symbols) if pair != (0, 0)]
    if not symbols or len(points) < 2 or any(0 in pair for pair in points):
        return False
    (a, b), *others = points
    return (not positive or bool(a / b > 0)) and all(_same_number(a * d, b * c) for c, d in others)


def _done(expression: Basic) -> Basic:
    lazy = expression.has(Sum, Product, Integral, Limit, Derivative)
    return expression.doit() if lazy else expression


def _both_at_points(pair: tuple[Basic, Basic], symbols: set[Basic]) -> Iterator[tuple[Basic, Basic]]:
    """Both expressions at each point where both are defined."""
    complex_numbers = any(expression.has(I) for expression in pair)
    scales = _SCALES if any(expression.has(*_PIECEWISE) for expression in pair) else (1,)
    ordered = sorted(symbols, key=str)[:_MAX_SYMBOLS]
    for scale, (shift, signs) in product(scales, enumerate(_SIGNS)):
        point = {symbol: scale * _coordinate(index, shift, signs) for index, symbol in enumerate(ordered)}
        if not complex_numbers and any(_has_root_of_negative(expression, point) for expression in pair):
            continue
        first, second = (expression.subs(point) for expression in pair)
        if all(_is_defined(value, complex_numbers) for value in (first, second)):
            yield first, second


def _has_root_of_negative(expression: Basic, point: dict[Basic, Basic]) -> bool:
    r"""Whether a square root in it is not real there, even if all of it is, as in ``\sqrt{x}\sqrt{y}``."""
    roots = (power for power in expression.atoms(Pow) if power.exp.is_Rational and power.exp.q % 2 == 0)
    return any(root.base.subs(point).is_negative for root in roots)


def _coordinate(index: int, shift: int, signs: tuple[int, ...]) -> Rational:
    return signs[index % len(signs)] * (_COORDINATES[(index + shift) % len(_COORDINATES)] + index // len(_COORDINATES))


def _is_defined(value: Basic, complex_numbers: bool) -> bool:
    if value.has(nan, zoo, oo, -oo) or value.free_symbols:
        return False
    return complex_numbers or isinstance(value, Rational) or value.is_real is not False and _is_real(value)


def _is_real(value: Basic) -> bool:
    number = value.evalf(15)
    return bool(number.is_real or abs(number.as_real_imag()[1]) < 1e-12 * abs(number))


def _same_number(first: Basic, second: Basic) -> bool:
    if first == second:
        return True
    if (isinstance(first, Rational) and isinstance(second, Rational)) or first.is_infinite or second.is_infinite:
        return False
    if _is_root(first) and isinstance(second, Rational) or _is_root(second) and isinstance(first, Rational):
        return False
    if not _agree(first, second, _DIGITS):
        return False
    digits = min(_DIGITS + 2 * (_written(first) + _written(second)), _MAX_DIGITS)
    return _agree(first, second, digits)


def _is_root(number: Basic) -> bool:
    """Whether a number is a rational one times a root that SymPy could not take, and so irrational."""
    power = number.as_coeff_Mul()[1]
    return isinstance(power, Pow) and isinstance(power.base, Rational) and isinstance(power.exp, Rational)


def _written(number: Basic) -> int:
    """How many digits the rational numbers in an expression have."""
    bits = sum(int(atom.p).bit_length() + int(atom.q).bit_length() for atom in number.atoms(Rational))
    return bits * 3 // 10


def _agree(first: Basic, second: Basic, digits: int) -> bool:
    a, b = (side.evalf(digits, maxn=2 * digits) for side in (first, second))
    if not (a.is_number and b.is_number):
        return bool(simplify(first - second) == 0)
    if min(abs(a), abs(b)) < _TOLERANCE:  # digits cancelled, or one of them is zero: decide by algebra
        return bool((first - second).equals(Integer(0)))
    return bool(abs(a - b) <= Rational(1, 10 ** (digits - 10)) * max(abs(a), abs(b)))


def free_symbol(*expressions: Basic) -> Symbol | None:
    """The one symbol that occurs in the expressions, or None if there is none or more than one."""
    symbols = set().union(*(expression.free_symbols for expression in expressions))
    return symbols.pop() if len(symbols) == 1 else None
