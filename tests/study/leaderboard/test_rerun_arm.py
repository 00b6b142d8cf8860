"""An arm is trained again at tiny size, added to a leaderboard, and compared with the figures that are stored."""

from pathlib import Path

import pytest
from forked import succeed
from places import ROOT

from ngrpo.study.definition import as_json, load_study
from ngrpo.study.leaderboard.files import publish, read_setting
from ngrpo.study.results import Results

SETTINGS = [
    "generated_tokens=6000", "tune.generated_tokens=1500", "iterations=50", "tune.iterations=50", "tune.rates=[3e-4]",
    "test.problems=32", "tune.validation.problems=4",
]  # fmt: skip
MEAN, LENGTH = 0.11, 18.0
"""Mean@1 and length of the demo model after these tokens, as on 2026-11-30."""


@pytest.mark.slow
def test_an_arm_is_what_it_was(tmp_path: Path) -> None:
    board = tmp_path / "board"
    study = load_study(ROOT / "conf", "quick", SETTINGS)
    publish(Results(study=as_json(study)), board)
    words = [
        "add",
        "--quick",
        "--arm",
        "again_grpo",
        "--with",
        "exploration=token",
        "--with",
        "algo=grpo",
        "--seeds",
        "1",
    ]
    printed = succeed("study.py", *words, *SETTINGS, "--out", str(tmp_path / "out"), "--leaderboard", str(board))
    assert "again_grpo.json is shown in" in printed
    (run,) = read_setting(board / "quick").of_arm("again_grpo")
    assert run.tokens is not None
    assert 6000 <= run.tokens < 7500
    assert run.iterations < 50
    assert run.settings[-1] == "trainer.max_generated_tokens=6000"
    assert sum(run.test.right) / (32 * run.test.samples) == pytest.approx(MEAN, abs=0.06)
    assert run.test.length == pytest.approx(LENGTH, abs=4)
    assert "| again_grpo | 1 of 1 |" in (board / "leaderboard.md").read_text()
