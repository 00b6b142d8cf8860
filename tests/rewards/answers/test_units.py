import pytest

from ngrpo.rewards.answers.notation import tidy
from ngrpo.rewards.answers.units import split_unit


@pytest.mark.parametrize(
    ("text", "rest", "unit"),
    [
        ("12", "12", None),
        (r"12\text{ cm}", "12", "cm"),
        ("12 centimetres", "12", "cm"),
        (r"12\ \mathrm{cm}^2", "12", "cm^2"),
        (r"12\text{ square inches}", "12", "in^2"),
        (r"12 \text{ cubic feet}", "12", "ft^3"),
        (r"12\text{ miles per hour}", "12", "mph"),
        (r"12\,\text{m/s}", "12", "m/s"),
        (r"12\frac{1}{2} \text{ apples}", r"12\frac{1}{2}", "apple"),
        ("50%", "50", "%"),
        (r"50\text{ percent}", "50", "%"),
        (r"-\$1,000", "-1,000", "$"),
        ("18 dollars", "18", "$"),
        ("5 cents", "5", "¢"),
        (r"90^{\circ}", "90", "deg"),
        (r"20^\circ\text{C}", "20", "deg C"),
        ("12 m", "12", "m"),
        ("12m", "12m", None),
        ("5x", "5x", None),
        (r"\text{cm}", r"\text{cm}", None),
        (r"\cos 60^\circ", r"\cos 60^\circ", None),
        (r"3:30 \text{ p.m.}", r"3:30 \text{ p.m.}", None),
    ],
)
def test_split_unit(text: str, rest: str, unit: str | None) -> None:
    assert split_unit(tidy(text)) == (rest, unit)
