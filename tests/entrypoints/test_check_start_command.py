"""The command that compares one model, as it is run on machines with a GPU."""

import json
from pathlib import Path

import pytest
from forked import server, succeed
from places import ROOT


def test_a_right_model_passes_and_faults_show(tmp_path: Path):
    file = tmp_path / "start.json"
    succeed("check_start.py", "--random", "tiny", "--json", str(file), "--precision", "bf16-mixed")
    report = json.loads(file.read_text())
    assert not report["refused"]
    assert [(f["path"], f["rollouts"]) for f in report["figures"]] == [
        ("trainer", "plain"), ("trainer", "explored"), ("engine", "plain"), ("engine", "explored"),
    ]  # fmt: skip
    refused = {name: [f["rollouts"] for f in found if f["refused"]] for name, found in report["faults"].items()}
    assert refused == {"mixtures ignored": ["explored"], "positions shifted": ["plain", "explored"]}


@pytest.mark.parametrize("script", ["check_start", "check_replay"])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model", "no/such"), "model.path=no/such"),
        (("--model", "demo", "--dtype", "no"), "dtype=no"),
        (("--model", "demo", "--exploration", "no"), "exploration=no is not known"),
        (("--model", "demo", "--exploration", "neighbor", "exploration.k=-1"), "k=-1"),
    ],
)
def test_what_is_wrong_is_one_sentence(script: str, words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = server().run((str(ROOT / "scripts" / f"{script}.py"), *words), tmp_path)
    assert done.status == 1, done.said
    line = done.said.splitlines()[-1]
    assert line.startswith("error: ")
    assert sentence in line
    assert "Traceback" not in done.said
