"""The script that compares one model, as it is run on machines with a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

from places import ROOT


def test_a_right_model_passes_and_faults_show(tmp_path: Path):
    file = tmp_path / "start.json"
    command = [sys.executable, "scripts/check_start.py", "--random", "tiny", "--json", str(file), "--mixed"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(file.read_text())
    assert not report["refused"]
    assert [(f["path"], f["rollouts"]) for f in report["figures"]] == [
        ("trainer", "plain"), ("trainer", "explored"), ("engine", "plain"), ("engine", "explored"),
    ]  # fmt: skip
    refused = {name: [f["rollouts"] for f in found if f["refused"]] for name, found in report["faults"].items()}
    assert refused == {"mixtures ignored": ["explored"], "positions shifted": ["plain", "explored"]}
