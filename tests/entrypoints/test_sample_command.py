"""``ngrpo sample``: responses on the console, with what was mixed."""

import re
from pathlib import Path

import pytest
from forked import Scripts
from places import ROOT

SCRIPT = str(ROOT / "scripts/sample.py")
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have?"


def test_mixed_positions_stand_in_brackets_with_their_weights(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run((SCRIPT, "demo", QUESTION, "exploration=neighbor", "exploration.rate=0.5", "n=3"), tmp_path)
    assert done.status == 0, done.said
    headings = re.findall(r"^(\d): \d+ tokens, (\d+) mixed, ended by stop$", done.said, re.MULTILINE)
    assert [number for number, _ in headings] == ["1", "2", "3"]
    shown = re.findall(r"\[(\S+ \d\.\d\d(?: \| \S+ \d\.\d\d)*)\]", done.said)
    assert len(shown) == sum(int(mixed) for _, mixed in headings) > 0
    for mixture in shown:
        assert sum(float(part.split()[1]) for part in mixture.split(" | ")) == pytest.approx(1.0, abs=0.03)
    assert list(tmp_path.iterdir()) == []


def test_noise_and_recorded_vectors_are_said(scripts: Scripts, tmp_path: Path) -> None:
    assert "| noise 0.0" in scripts.run((SCRIPT, "demo", QUESTION, "exploration=gaussian"), tmp_path).said
    assert "| recorded vector]" in scripts.run((SCRIPT, "demo", QUESTION, "exploration=hrpo"), tmp_path).said


def test_one_sentence_for_what_it_does_not_know(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run((SCRIPT, "demo", QUESTION, "exploratio=neighbor"), tmp_path)
    assert (done.status, done.said) == (1, "error: exploratio is no setting; the nearest is exploration.\n")
    assert list(tmp_path.iterdir()) == []
