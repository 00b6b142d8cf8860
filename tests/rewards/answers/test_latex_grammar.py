"""The adapter to the LaTeX grammar: what it uses of the library's private parts is still there."""

import pytest
from latex2sympy2_extended import latex2sympy2
from places import ROOT
from sympy import Float, Rational

from ngrpo.rewards.answers.latex_grammar import _ExactConverter, parse


def test_numbers_are_exact_and_read_without_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("parse_expr is eval")

    monkeypatch.setattr(latex2sympy2, "parse_expr", refuse)
    for text, value in (("0.1", Rational(1, 10)), (r"\frac{0.5}{2}", Rational(1, 4))):
        tree = parse(text)
        assert tree is not None
        assert tree.doit() == value
        assert not tree.atoms(Float)


def test_the_replaced_method_is_the_one_that_the_grammar_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(latex2sympy2._Latex2Sympy.parse_number)
    read: list[str] = []
    parse_number = _ExactConverter.parse_number

    def record(converter: _ExactConverter, text: str) -> Rational:
        read.append(text)
        return parse_number(converter, text)

    monkeypatch.setattr(_ExactConverter, "parse_number", record)
    assert parse("3.25 + x") is not None
    assert read == ["3.25"]


def test_what_the_grammar_cannot_read_is_none() -> None:
    assert parse(r"\frac{1") is None
    assert parse(r"\foo{}}{") is None


def test_no_other_module_imports_the_library() -> None:
    importing = [
        path.name
        for path in (ROOT / "ngrpo").rglob("*.py")
        if "import" in (text := path.read_text()) and "latex2sympy2_extended." in text.replace("``", "")
    ]
    assert importing == ["latex_grammar.py"]
