import pytest

from ngrpo.errors import SettingError
from ngrpo.evaluation.solution_paths import calculations, normaliser, words


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("Mia owns 8 bags of three (8*3=24), finds two (24+2=26).\n</think>\n\\boxed{26}<|im_end|>", "8*3=24 24+2=26"),
        ("First 8 \u00d7 3 = 24, then 24 \u2212 30 = -6.", "8*3=24 24-30=-6"),
        ("This is easy.\n</think>\n\\boxed{26}", ""),
        ("x = 3, so 3 = 3", ""),
    ],
)
def test_calculations_are_read_in_order(text: str, way: str) -> None:
    assert calculations(text) == way


def test_order_of_calculations_makes_another_way_and_their_wording_does_not() -> None:
    assert calculations("has (5+2=7), (7-3=4)") != calculations("has (5-3=2), (2+2=4)")
    assert calculations("Anna owns 5, finds two (5+2=7)") == calculations("She has five and gets 2 (5 + 2 = 7).")


def test_words_ignore_case_space_number_words_and_special_tokens() -> None:
    assert words("She has  Seven\napples.<|im_end|>") == words("she has 7 apples.") == "she has 7 apples."
    assert words("She has 7 pears.") != words("She has 7 apples.")
    assert words("someone") == "someone"


def test_unknown_kind_is_refused() -> None:
    assert normaliser("text") is words
    with pytest.raises(SettingError, match="path=letters is not known"):
        normaliser("letters")


def test_expressions_in_the_box_are_alike_in_any_order() -> None:
    kind = normaliser("expression")
    assert kind("2+3=5, 5*4=20.\n</think>\n\\boxed{(2+3)*4}") == kind("\\boxed{4*(3+2)}<|im_end|>") != ""
    assert kind("\\boxed{4*3+2}") != kind("\\boxed{4*(3+2)}")
    assert kind("4*(3+2)") == kind("\\boxed{twenty}") == ""
