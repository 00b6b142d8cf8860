import pytest
from sympy import Abs, I, Integer, Rational, Symbol, cos, exp, floor, log, pi, sin, sqrt

from ngrpo.rewards.answers.latex import NotANumber, expression
from ngrpo.rewards.answers.limits import TooLarge
from ngrpo.rewards.answers.values import proportional, same_value

x, y = Symbol("x", real=True), Symbol("y", real=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (sqrt(3 + 2 * sqrt(2)), 1 + sqrt(2)),
        (sqrt(2) + sqrt(3), sqrt(5 + 2 * sqrt(6))),
        (sqrt(2) + sqrt(3) - sqrt(5 + 2 * sqrt(6)), Integer(0)),
        (exp(I * pi / 3), Rational(1, 2) + sqrt(3) / 2 * I),
        ((x + 1) ** 2, x**2 + 2 * x + 1),
        (sqrt(x**2), Abs(x)),
        (log(x * y), log(x) + log(y)),  # where both are defined
        (sin(2 * x), 2 * sin(x) * cos(x)),
        ((x - y) ** 2 - (x + y) ** 2 + 4 * x * y, Integer(0)),
    ],
)
def test_same_value(first: object, second: object) -> None:
    assert same_value(first, second)
    assert same_value(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Rational(1, 3), Rational(3333333333, 10**10)),
        (Integer(0), Rational(1, 10**9)),
        (Integer(0), pi / 10**60),
        (pi / 10**60, 2 * pi / 10**60),
        (sqrt(2), Rational("1.41421356237309504880")),
        (sqrt(x**2), x),
        (x, y),
        (x, Integer(0)),
        (sin(x), x),
        (I, -I),
        (Abs(x - 100), 100 - x),
        (floor(x / 10000), floor(x / 20000)),
    ],
)
def test_other_value(first: object, second: object) -> None:
    assert not same_value(first, second)
    assert not same_value(second, first)


def test_proportional() -> None:
    assert proportional(2 * x + 4 * y - 3, 3 - 4 * y - 2 * x)
    assert proportional(y - 1 / x, x * y - 1)
    assert not proportional(x - 1, x + 1)
    assert not proportional(x, Integer(0))
    assert not proportional(Integer(0), Integer(0))
    assert not proportional(Integer(1), Integer(2))
    assert proportional(x - y, 2 * x - 2 * y, positive=True)
    assert not proportional(x - y, y - x, positive=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2(3)", Integer(6)),
        (r"3\frac{7}{2}", Rational(21, 2)),
        (r"1\frac{1}{2}\pi", 3 * pi / 2),
        ("0.1", Rational(1, 10)),
        ("0.1x", x / 10),
        (r"\sqrt[3]{-8}", Integer(-2)),
        (r"\cos 60^\circ", Rational(1, 2)),
        ("2i", 2 * I),
        ("i^{2}", Integer(-1)),
        ("X", Symbol("X", real=True)),
        ("2^{100}", Integer(2) ** 100),
        ("x<1", None),
        ("2 3", None),
        ("?", None),
    ],
)
def test_expression(text: str, value: object) -> None:
    assert expression(text) == value


@pytest.mark.parametrize("text", ["9^{9^{9}}", "(10!)!", "6000!", "2^{-1000000}", "x^{20000}", "1+" * 600 + "1"])
def test_too_large(text: str) -> None:
    with pytest.raises(TooLarge):
        expression(text)


@pytest.mark.parametrize("text", ["1/0", r"\frac{x}{0}", "0^{-1}"])
def test_not_a_number(text: str) -> None:
    with pytest.raises(NotANumber):
        expression(text)
