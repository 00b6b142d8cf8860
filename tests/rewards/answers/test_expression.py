import random
from fractions import Fraction

import pytest

from ngrpo.data.countdown.generator import written
from ngrpo.rewards.answers.expression import MAX_TOKENS, Expression, Number, Operation, parse


def drawn(rng: random.Random, numbers: int) -> Expression:
    if numbers == 1:
        return Number(rng.randint(0, 9))
    left = rng.randint(1, numbers - 1)
    return Operation(drawn(rng, left), rng.choice("+-*/"), drawn(rng, numbers - left))


def test_values_are_those_of_python_with_fractions() -> None:
    rng, divided_by_zero = random.Random(0), 0
    for _ in range(500):
        expression = drawn(rng, rng.randint(1, 6))
        text = written(expression)
        fractions = "".join(f"Fraction({part})" if part.isdecimal() else part for part in text)
        try:
            expected = Fraction(eval(fractions))
        except ZeroDivisionError:
            expected, divided_by_zero = None, divided_by_zero + 1
        assert expression.value == expected
        assert parse(text) == expression
    assert divided_by_zero > 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", 14), ("(2+3)*4", 20), ("9-3-2", 4), ("12/3/2", 2), (" 7 - ( 3 - 2 ) ", 6), ("1/3+2/3", 1),
        (r"3 \times 4 \div 2", 6), ("6\u22122\u00d72", 2), (r"\left(1+2\right)\cdot 3", 9), ("007", 7),
    ],
)  # fmt: skip
def test_reads_products_before_sums_from_the_left(text: str, value: int) -> None:
    expression = parse(text)
    assert expression is not None
    assert expression.value == value


@pytest.mark.parametrize(
    "text",
    ["", "(", "()", "1+", "+1", "-1", "3--1", "3 4", "(3", "3)", "2(3)", "2**3", "2//3", "2^3", "x", "3=3", "1.5",
     "1+1+" * MAX_TOKENS + "1", "(" * 5000 + "1" + ")" * 5000, "9" * 5000, "__import__('os')", "\u0663+1"],
)  # fmt: skip
def test_anything_else_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1+2+3", "3+(2+1)"), ("1-(2-3)", "1+3-2"), ("(1-2)+3", "3+1-2"), ("2*3*4", "4*(3*2)"), ("6/(2/3)", "6*3/2"),
        ("(1+2)*3", "3*(2+1)"), ("5-(1+2)", "5-2-1"),
    ],
)  # fmt: skip
def test_order_and_brackets_of_sums_and_products_give_one_form(one: str, other: str) -> None:
    first, second = parse(one), parse(other)
    assert first is not None
    assert second is not None
    assert first.form == second.form
    assert first.value == second.value


@pytest.mark.parametrize(("one", "other"), [("2+2", "2*2"), ("1-2", "2-1"), ("4/2", "2/4"), ("(1+2)*3", "1+2*3")])
def test_other_calculations_have_other_forms(one: str, other: str) -> None:
    first, second = parse(one), parse(other)
    assert first is not None
    assert second is not None
    assert first.form != second.form


def test_equal_forms_have_equal_values() -> None:
    rng, forms = random.Random(1), dict[str, Fraction | None]()
    for _ in range(3000):
        expression = drawn(rng, 4)
        assert forms.setdefault(expression.form, expression.value) == expression.value
    assert len(forms) < 2995
