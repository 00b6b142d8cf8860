"""The script that compares one model, as it is run on machines with a GPU."""

import json
from pathlib import Path

from forked import succeed


def test_a_right_model_passes_and_faults_show(tmp_path: Path):
    file = tmp_path / "start.json"
    succeed("check_start.py", "--random", "tiny", "--json", str(file), "--mixed")
    report = json.loads(file.read_text())
    assert not report["refused"]
    assert [(f["path"], f["rollouts"]) for f in report["figures"]] == [
        ("trainer", "plain"), ("trainer", "explored"), ("engine", "plain"), ("engine", "explored"),
    ]  # fmt: skip
    refused = {name: [f["rollouts"] for f in found if f["refused"]] for name, found in report["faults"].items()}
    assert refused == {"mixtures ignored": ["explored"], "positions shifted": ["plain", "explored"]}
