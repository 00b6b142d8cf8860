"""The verifier from Python."""

import pytest

import ngrpo
from ngrpo.errors import SettingError


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"\frac{1}{2}", "0.5", True),
        ("7", r"3 + 4 = 7, so \boxed{7}", True),
        ("7", r"\boxed{7} or rather \boxed{8}", False),
        ("7", "8", False),
        ("7", "", False),
        (7, 7.0, True),
        (0.5, r"\frac{1}{2}", True),
        (2, 3, False),
    ],
)
def test_it_compares_as_the_reward_does(gold: str | float, answer: str | float, right: bool) -> None:
    assert ngrpo.verify(gold, answer) is right


def test_a_reference_that_is_no_answer_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^gold='' is no answer that others can be compared with; write it as"):
        ngrpo.verify("", "7")
