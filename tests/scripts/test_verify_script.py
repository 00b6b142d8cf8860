"""scripts/verify.py: verdicts, disagreements, exit status, and what it says to broken files."""

import json
from pathlib import Path

import pytest
from forked import Done, server
from places import ROOT


def verify(path: Path) -> Done:
    return server().run(["verify.py", str(path), "--workers", "1"], ROOT, errors_apart=True, limit_s=60)


def test_disagreements_are_printed_and_give_status_1(tmp_path: Path) -> None:
    rows = [
        {"gold": "1/2", "text": r"so \boxed{0.5}", "expected": True},
        {"gold": "1/2", "text": r"<think>\boxed{0.5}"},
        {"gold": "1/3", "text": r"\boxed{0.33}", "expected": True},
        {"gold": "}{", "text": r"\boxed{1}", "expected": False},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    done = verify(path)
    lines = [line.split() for line in done.said.splitlines()]
    assert [line[1] for line in lines[:4]] == ["correct", "no_answer", "wrong", "unparsable_reference"]
    assert done.said.splitlines()[4] == "1 of 4 right, 1 not as expected"
    assert lines[5:] == [lines[2]]
    assert done.status == 1


def test_no_disagreement_gives_status_0() -> None:
    done = verify(ROOT / "tests/rewards/verifier_pairs.jsonl")
    assert done.status == 0
    assert done.said.splitlines()[-1].endswith("0 not as expected")
    assert len(done.said.splitlines()) == 46


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"gold": "1", "text": "2"}\nnot json', "line 2"),
        ('{"gold": "1"}', "line 1"),
        ('{"gold": 1, "text": "2"}', "line 1"),
        ("[1]", "line 1"),
        ('{"gold": "1", "text": "2", "expected": "yes"}', "expected"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(content)
    done = verify(path)
    assert done.status == 1
    assert done.errors.startswith("error: ")
    assert message in done.errors


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "cannot be read (No such file or directory)" in verify(tmp_path / "none.jsonl").errors
