import pytest

from ngrpo.data.sources.problem_text import fingerprint, normalised

SAME = [
    ("What is $1+1$?", "what is 1 + 1"),
    ("What is\n\n  two?", "What is two."),
    (r"Find $\dfrac{1}{2} x$.", r"Find \(\frac{1}{2}x\)"),
    (r"$\left( 1, \, 2 \right)$", "$(1,2)$"),
    ("\N{FULLWIDTH DIGIT THREE} x", "3 x"),
    (r"Find \[x^2\]", "Find $x^2$"),
]
DIFFERENT = [
    ("3 4/5", "34/5"),
    ("1 + 1", "1 - 1"),
    ("x^2", "x_2"),
    (r"\{1, 2\}", "(1, 2)"),
    ("a b", "ab"),
    ("What is 1.5?", "What is 15?"),
    ("x < y", "x > y"),
    (r"\leftarrow", "arrow"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_what_only_changes_the_setting_does_not_count(one: str, two: str) -> None:
    assert normalised(one) == normalised(two)
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_every_letter_digit_and_operator_counts(one: str, two: str) -> None:
    assert normalised(one) != normalised(two)
    assert fingerprint(one) != fingerprint(two)


def test_fingerprints_fit_a_signed_integer() -> None:
    assert all(0 <= fingerprint(str(i)) < 2**63 for i in range(100))
