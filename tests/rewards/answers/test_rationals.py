import pytest
from sympy import Rational

from ngrpo.rewards.answers.rationals import rational


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", (12, 1)),
        ("-12", (-12, 1)),
        ("--12", (12, 1)),
        ("- 1.50", (-3, 2)),
        (".5", (1, 2)),
        ("5.", (5, 1)),
        ("1,234.5", (2469, 2)),
        ("1 000", (1000, 1)),
        (r"0.\overline{3}", (1, 3)),
        (r"1.2\overline{45}", (137, 110)),
        (r"\frac{-1}{2}", (-1, 2)),
        (r"-\frac{1.5}{-3}", (1, 2)),
        ("3/4", (3, 4)),
        (r"1\frac{3}{4}", (7, 4)),
        ("-1 3/4", (-7, 4)),
        (r"2.5 \times 10^{-2}", (1, 40)),
        ("10^{3}", (1000, 1)),
    ],
)
def test_rational(text: str, number: tuple[int, int]) -> None:
    assert rational(text) == Rational(*number)


@pytest.mark.parametrize(
    "text",
    ["", ".", "-", "x", "1x", "1,00", "1,0000", r"\frac{1}{0}", "1/0", r"1\frac{7}{4}", "10^{99999}", "1" * 2000, "²"],
)
def test_not_a_rational(text: str) -> None:
    assert rational(text) is None
