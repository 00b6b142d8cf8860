"""scripts/verify.py: verdicts, disagreements, exit status, and what it says to broken files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT


def verify(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/verify.py", str(path), "--workers", "1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


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
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[1] for line in lines[:4]] == ["correct", "no_answer", "wrong", "unparsable_reference"]
    assert done.stdout.splitlines()[4] == "1 of 4 right, 1 not as expected"
    assert lines[5:] == [lines[2]]
    assert done.returncode == 1


def test_no_disagreement_gives_status_0() -> None:
    done = verify(ROOT / "tests/rewards/verifier_pairs.jsonl")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith("0 not as expected")
    assert len(done.stdout.splitlines()) == 46


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
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "cannot be read (No such file or directory)" in verify(tmp_path / "none.jsonl").stderr
