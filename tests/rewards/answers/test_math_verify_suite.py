"""The pairs of math-verify's own test-suite: where the verdict is another, the table says why.

A line of the table has ``gold``, ``answer``, what the suite expects and, where the verdict here is the other one, the
reason. The pairs are texts of its tests (source and license in the first line), turned into box contents.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

TABLE = Path(__file__).with_name("math_verify_suite.jsonl")
KNOWN = 63
"""Disagreements that the table may have at most: a reason is no way to get rid of a fault."""


@dataclass(frozen=True)
class Row:
    """A line of the table; ``reason`` is None where the verdicts agree."""

    gold: str
    answer: str
    expected: bool
    test: str
    reason: str | None = None


def rows() -> list[Row]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return [Row(**json.loads(line)) for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.gold[:40]} | {row.answer[:40]}")
def test_the_verdict_is_the_one_of_the_table(row: Row) -> None:
    correct = judge(row.gold, row.answer) is Verdict.CORRECT
    assert correct is (row.expected if row.reason is None else not row.expected)


def test_the_table_is_whole() -> None:
    reasons = [row.reason for row in rows() if row.reason is not None]
    assert len(rows()) == 269
    assert all(len(reason.split()) > 3 for reason in reasons)
    assert len(reasons) <= KNOWN
    assert "Apache License 2.0" in json.loads(TABLE.read_text(encoding="utf-8").splitlines()[0])["source"]
