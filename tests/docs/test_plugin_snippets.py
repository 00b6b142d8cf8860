"""The code of the pages for other trainers runs as it stands there, and asks a user of TRL for few changes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from prose import PAGES


def block(page: str) -> str:
    """The only one of a page."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    return str(code)


REPLAY, TRL, VERL = (block(f"docs/{name}.md") for name in ("plugins", "trl", "verl"))


def run(code: str, folder: Path) -> str:
    """Runs a block in a process of its own; returns what it printed."""
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, check=False, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_any_trainer_can_replay(tmp_path: Path) -> None:
    run(REPLAY, tmp_path)


@pytest.mark.trl
def test_trl_trains(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra ngrpo[trl] is not installed")
    said = run(TRL, tmp_path)
    differences = [float(one) for one in re.findall(r"'exploration/replay_difference': '?([\d.e-]+)", said)]
    assert len(differences) == 2
    assert max(differences) < 1e-4


def test_a_record_becomes_fields_of_verl(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    run(VERL + "assert extra_fields['exploration']['exploration_tokens'].tolist() == [-1, -1, 7, -1]", tmp_path)


def test_a_user_of_trl_changes_five_lines_at_most() -> None:
    assert 0 < TRL.count("# changed") <= 5
