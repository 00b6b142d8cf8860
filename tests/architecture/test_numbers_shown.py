"""Formats of numbers in the source: none of them can show a rounded number as minus nothing."""

import ast
import re

from places import ROOT

FORMATS = ROOT / "ngrpo/utils/numbers.py"
"""Has tests of its own."""

ROUNDING = re.compile(r"\.\d*\}?[fe%]$")


def specs(source: str) -> list[str]:
    """Returns the format specifications of all f-strings; a nested expression stands as its closing brace."""
    return [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "}" for part in node.format_spec.values)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr)
    ]


def unsafe(source: str) -> list[str]:
    """Returns the rounding formats without Python's ``z``, which drops the sign of a rounded zero."""
    return [spec for spec in specs(source) if ROUNDING.search(spec) and "z" not in spec]


def test_an_unsafe_format_is_found() -> None:
    assert unsafe('f"{a:+.3f} {b:.0%} {c:.{d}f}"') == ["+.3f", ".0%", ".}f"]
    assert unsafe('f"{a:+z.3f} {b:z.0%} {c:z.{d}f} {d:g} {e:>4}"') == []


def test_rounded_numbers_have_no_sign_of_zero() -> None:
    files = [*(ROOT / "ngrpo").rglob("*.py"), *(ROOT / "callbacks").glob("*.py")]
    found = {str(file.relative_to(ROOT)): unsafe(file.read_text()) for file in files if file != FORMATS}
    assert {name: bad for name, bad in found.items() if bad} == {}, "use ngrpo.utils.numbers, or a z in the format"
