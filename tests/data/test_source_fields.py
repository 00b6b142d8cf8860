from decimal import Decimal

import pytest

from ngrpo.data.sources import Fields, normalise_answer
from ngrpo.data.types import LeftOut, Problem
from ngrpo.errors import SettingError


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (142.0, "142"),
        ("142.0", "142"),
        (" 48.00\n", "48"),
        (-3.0, "-3"),
        ("-0.0", "0"),
        (Decimal("7.0"), "7"),
        (142, "142"),
        ("0", "0"),
        (0.5, "0.5"),
        ("1.50", "1.50"),
        ("\\frac{1}{2} ", "\\frac{1}{2}"),
        ("007", "007"),
        (None, None),
        ("", None),
        ("  ", None),
        ("nan", None),
        (float("nan"), None),
        (["142"], None),
    ],
)
def test_normalise_answer(raw: object, expected: str | None) -> None:
    assert normalise_answer(raw) == expected


def test_row_says_why_there_is_no_problem() -> None:
    fields = Fields("q", "a")
    assert fields.row(3, {"q": " 1 + 1? ", "a": 2.0}) == Problem(3, "1 + 1?", "2")
    assert fields.row(0, {"q": "1 + 1?", "a": None}) == LeftOut("missing_answer")
    assert fields.row(0, {"q": "1 + 1?"}) == LeftOut("missing_answer")
    assert fields.row(0, {"q": " ", "a": "2"}) == LeftOut("missing_question")
    assert fields.row(0, {"a": "2"}) == LeftOut("missing_question")


def test_check_names_the_setting_and_the_choices() -> None:
    Fields().check(["answer", "problem"], "data.path='x'")
    with pytest.raises(SettingError, match=r"data\.question_field='q' .*data\.path='x'.*: answer, problem"):
        Fields("q").check(["problem", "answer"], "data.path='x'")
    with pytest.raises(SettingError, match=r"data\.answer_field='solution'"):
        Fields(answer="solution").check(["problem", "answer"], "data.path='x'")
