"""math-verify as an independent reference, on the kinds of answers that it is made for."""

import logging
from pathlib import Path
from typing import Any

import pytest
from math_verify import parse, verify

KINDS = {"roots and powers", "polynomials and functions", "matrices and vectors"}
# Where it is wrong: it does not read the sign for a root, takes complex roots of negative numbers, ignores case.
KNOWN = {r"2\sqrt{2} == 2√2", r"\sqrt[3]{-8} == -2", "x != X", "ab != AB"}


def lines() -> list[str]:
    blocks = Path(__file__).with_name("pairs.txt").read_text(encoding="utf-8").split("\n# ")
    return [line for block in blocks if block.splitlines()[0] in KINDS for line in block.splitlines()[1:] if line]


def expressions(text: str) -> list[Any]:
    return parse(f"${text}$", fallback_mode="no_fallback", parsing_timeout=None)


@pytest.mark.parametrize("line", sorted(set(lines()) - KNOWN))
def test_it_agrees(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("math_verify"), "disabled", True)
    first, second = (expressions(side) for side in line.replace(" != ", " == ").split(" == "))
    either = verify(first, second, timeout_seconds=None) or verify(second, first, timeout_seconds=None)
    assert either == (" == " in line)


def test_there_is_something_to_agree_on() -> None:
    assert len(lines()) > 50
    assert set(lines()) > KNOWN
