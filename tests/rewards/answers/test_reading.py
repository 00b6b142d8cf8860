"""Pairs of answers of every kind, in both directions."""

import builtins
from pathlib import Path

import pytest
import sympy.parsing.sympy_parser

from ngrpo.rewards.answers.read import read_answer
from ngrpo.rewards.answers.reading import equal
from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

LINES = [
    line
    for line in Path(__file__).with_name("pairs.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]
EQUAL = [line.split(" == ") for line in LINES if " == " in line]
DIFFERENT = [line.split(" != ") for line in LINES if " == " not in line]
ANSWERS = sorted({answer for pair in EQUAL + DIFFERENT for answer in pair})


def test_there_are_pairs_of_both_kinds() -> None:
    assert len(EQUAL) > 300
    assert len(DIFFERENT) >= 200


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal(first: str, second: str) -> None:
    assert judge(first, second) == judge(second, first) == Verdict.CORRECT


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different(first: str, second: str) -> None:
    assert judge(first, second) is judge(second, first) is Verdict.WRONG


def test_every_answer_is_read_and_equals_itself_as_mathematics_and_as_text() -> None:
    for answer in ANSWERS:
        assert judge(answer, f"$ {answer} $.") is Verdict.CORRECT, answer


def test_no_text_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[object] = []

    def refuse(*arguments: object, **settings: object) -> None:
        evaluated.append(arguments)
        raise AssertionError

    judge("x<2", "(x+1)^2<4")  # imports what it needs
    read_answer.cache_clear()
    monkeypatch.setattr(builtins, "eval", refuse)
    monkeypatch.setattr(sympy.parsing.sympy_parser, "eval_expr", refuse)
    monkeypatch.setattr(sympy.parsing.sympy_parser, "parse_expr", refuse)
    attacks = ["__import__('os').system('true')", "().__class__", "lambda: 0", "exec(1)", "x.__class__"]
    for answer in [*ANSWERS, *attacks]:
        parsed = read_answer(answer)
        assert parsed is None or equal(parsed, parsed)
        assert judge("5", answer) is not Verdict.UNPARSABLE_REFERENCE
    read_answer.cache_clear()
    assert evaluated == []


@pytest.mark.parametrize(
    "text", ["", " ", "$$", "{", "}{", "(1", "1)", r"\frac{1}{2", "1/0", r"\frac{0}{0}", "5" * 3000]
)
def test_no_answer(text: str) -> None:
    assert read_answer(text) is None


def test_what_cannot_be_read_is_compared_as_text() -> None:
    first, second = read_answer(r"f: A \to B"), read_answer(r"f:A\to B")
    assert first is not None
    assert second is not None
    assert equal(first, second)
    assert judge(r"f: A \to B", r"f: B \to A") is Verdict.WRONG
