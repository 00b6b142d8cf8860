"""A run that was killed after its last checkpoint goes on to its end."""

import json
import shutil
from pathlib import Path

import pytest
from faulty_run import QUICK, finish
from safetensors.torch import load_file

pytestmark = pytest.mark.faults
WHOLE = (
    *(setting for setting in QUICK if not setting.startswith(("callbacks.evaluation", "callbacks.export"))),
    "trainer.iterations=2", "callbacks.evaluation.every=0", "callbacks.evaluation.evaluator.samples=1",
    "data.eval_problems=2", "rollout.max_new_tokens=8",
)  # fmt: skip


def test_a_lost_export_is_made_by_the_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, settings=WHOLE)[0] == 0
    before = load_file(run / "model" / "model.safetensors")
    history = json.loads((run / "summary.json").read_text())["eval"]["history"]
    shutil.rmtree(run / "model")
    for late in ("summary.json", "report.html"):
        (run / late).unlink()

    status, said = finish(run, "ckpt=latest", settings=WHOLE)
    assert status == 0, said
    after = load_file(run / "model" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(bool((after[name] == before[name]).all()) for name in before)
    assert (run / "report.html").exists()
    assert [path.name for path in (run / "checkpoints").glob("iteration-*")] == ["iteration-1", "iteration-2"]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["iterations"] == 2
    assert summary["eval"]["history"] == history

    status, said = finish(run, "ckpt=latest", settings=WHOLE)
    assert (status, said.splitlines()[-1]) == (
        1,
        f"error: trainer.iterations=2 is already reached by ckpt={run}/checkpoints/iteration-2 (2 iterations); raise "
        "it.",
    )
