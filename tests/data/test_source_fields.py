from decimal import Decimal

import numpy as np
import pytest

from ngrpo.data.sources import Fields, normalise_answer, read_difficulty
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem


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
        ("00142.000", "142"),
        ("+7.0", "7"),
        ("9" * 5000 + ".0", "9" * 5000),
        (float("inf"), None),
        (float("nan"), None),
        (["142"], None),
        (np.float32("inf"), None),
        (np.float32("nan"), None),
        (Decimal("-Infinity"), None),
        ("infinity", "infinity"),
        (10**400, str(10**400)),
    ],
)
def test_normalise_answer(raw: object, expected: str | None) -> None:
    assert normalise_answer(raw) == expected


def test_row_says_why_there_is_no_problem() -> None:
    fields = Fields("q", "a")
    assert fields.row(3, {"q": " 1 + 1? ", "a": 2.0}) == Problem(3, "1 + 1?", "2")
    assert fields.row(0, {"q": "1 + 1?", "a": None}) == Excluded("missing_answer")
    assert fields.row(0, {"q": "1 + 1?"}) == Excluded("missing_answer")
    assert fields.row(0, {"q": " ", "a": "2"}) == Excluded("missing_question")
    assert fields.row(0, {"a": "2"}) == Excluded("missing_question")
    assert fields.row(0, {"q": ["1 + 1?"], "a": "2"}) == Excluded("question_not_text")
    assert fields.row(0, {"q": "1 + 1?", "a": ["2", "3"]}) == Excluded("answer_not_scalar")
    assert fields.row(0, {"q": "half a pair \ud800", "a": "2"}) == Excluded("invalid_characters")
    assert fields.row(0, {"q": "1 + 1?", "a": "\udfff"}) == Excluded("invalid_characters")


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({"a": "1", "s": "\\boxed{2}"}, "1"),
        ({"a": None, "s": "\\boxed{1} so \\boxed{\\frac{1}{2}}"}, "\\frac{1}{2}"),
        ({"s": "\\boxed{2}"}, "2"),
        ({"s": "two"}, Excluded("no_box_in_solution")),
        ({"s": " "}, Excluded("missing_answer")),
        ({"s": None}, Excluded("missing_answer")),
        ({"a": ["1"], "s": "\\boxed{2}"}, Excluded("answer_not_scalar")),
    ],
)
def test_the_answer_is_in_the_solution_where_there_is_none(record: dict[str, object], answer: str | Excluded) -> None:
    row = Fields("q", "a", "s").row(0, {"q": "?", **record})
    assert row == (answer if isinstance(answer, Excluded) else Problem(0, "?", answer))
    if "a" not in record:
        assert Fields("q", "a").row(0, {"q": "?", **record}) == Excluded("missing_answer")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (4.5, 4.5),
        (3, 3.0),
        ("Level 5", 5.0),
        ("4.25", 4.25),
        ("-1", -1.0),
        ("Level ?", None),
        ("", None),
        (None, None),
        (float("inf"), None),
        ("9" * 400, None),
        (10**400, None),
        (float("nan"), None),
        (True, None),
        ([3], None),
    ],
)
def test_difficulties(raw: object, expected: float | None) -> None:
    assert read_difficulty(raw) == expected
    row = Fields(difficulty="d").row(0, {"problem": "?", "answer": "1", "d": raw})
    assert row == Problem(0, "?", "1", expected)
    required = Fields(difficulty="d", difficulty_required=True).row(0, {"problem": "?", "answer": "1", "d": raw})
    assert required == (Excluded("missing_difficulty") if expected is None else row)


def test_check_names_the_setting_and_the_choices() -> None:
    Fields().check(["answer", "problem"], "data.path='x'")
    with pytest.raises(SettingError, match=r"data\.question_field='q' .*data\.path='x'.*: answer, problem"):
        Fields("q").check(["problem", "answer"], "data.path='x'")
    with pytest.raises(SettingError, match=r"data\.answer_field='solution'"):
        Fields(answer="solution").check(["problem", "answer"], "data.path='x'")


def test_one_of_answer_and_solution_is_enough_and_a_difficulty_only_if_required() -> None:
    Fields(solution="s").check(["problem", "s"], "data.path='x'")
    Fields(solution="s", solution_required=False).check(["problem", "answer"], "data.path='x'")
    with pytest.raises(
        SettingError, match=r"^data\.solution_field='s' is no field of data\.path='x'; set it to one of: ans"
    ):
        Fields(solution="s").check(["problem", "answer"], "data.path='x'")
    message = (
        r"data\.sources\.a\.answer_field='answer'.*: problem, or data\.sources\.a\.solution_field .*'s' names none"
    )
    with pytest.raises(SettingError, match=message):
        Fields(solution="s").check(["problem"], "data.sources.a.path='x'", "data.sources.a")
    Fields(difficulty="level").check(["problem", "answer"], "data.path='x'")
    with pytest.raises(SettingError, match=r"data\.difficulty_field='level'.*: answer, problem\.$"):
        Fields(difficulty="level", difficulty_required=True).check(["problem", "answer"], "data.path='x'")
