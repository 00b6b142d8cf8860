import re

import pytest

from ngrpo.rewards.answers.scan import depth_of, enclosed, group_end, is_balanced, split


@pytest.mark.parametrize(
    ("text", "balanced"),
    [
        ("", True),
        ("a", True),
        ("(a", False),
        ("a)", False),
        (")(", False),
        ("()()", True),
        ("(0,1]", True),
        (r"\{1\}", True),
        (r"\{1}", True),  # which bracket closes which is not asked
        (r"\begin{pmatrix}1\end{pmatrix}", True),
        (r"\begin{pmatrix}1", False),
        (r"\\", True),
    ],
)
def test_is_balanced(text: str, balanced: bool) -> None:
    assert is_balanced(text) == balanced


def test_split_looks_outside_brackets_only() -> None:
    assert split("(1,2), \\{3,4\\} ,5", re.compile(",")) == (["(1,2)", r"\{3,4\}", "5"], [",", ","])
    assert split("(1,2)", re.compile(",")) == (["(1,2)"], [])


@pytest.mark.parametrize(
    ("text", "inner"),
    [("(1)", "1"), ("((1))", "(1)"), ("(1)(2)", None), ("()", ""), ("(", None), ("1", None), ("(1", None)],
)
def test_enclosed(text: str, inner: str | None) -> None:
    assert enclosed(text, "(", ")") == inner


def test_depth_and_end() -> None:
    assert depth_of("a") == 0
    assert depth_of("({a})") == 2
    assert group_end("{a{b}}c", 0) == 6
    assert group_end("{a", 0) == 2
