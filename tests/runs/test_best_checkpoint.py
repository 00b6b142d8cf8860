"""The best checkpoint of a real run, by a metric of evaluations on a benchmark and by one of the training."""

import csv
import json
from pathlib import Path

import pytest
from forked import succeed


@pytest.mark.parametrize("monitor", ["eval/demo/length", "train/reward"])
def test_the_best_iteration_is_named_and_kept(monitor: str, tmp_path: Path) -> None:
    overrides = ["debug=fast", "trainer.iterations=3", "benchmark=[demo]", "benchmark.demo.problems=3"]
    overrides += ["trainer.accelerator=cpu", "logger=csv", "reward.workers=1", f"hydra.run.dir={tmp_path}"]
    overrides += ["callbacks.checkpoint.every=10", f"callbacks.checkpoint.monitor={monitor}"]
    succeed("train.py", *overrides)
    best = json.loads((tmp_path / "checkpoints" / "best.json").read_text())
    history = json.loads((tmp_path / "summary.json").read_text())["eval"]["history"]
    values = {one["iteration"]: one["demo/length"] for one in history if one["iteration"] > 0}
    if monitor == "train/reward":
        values = _logged(tmp_path, monitor)
    reached = max(values.values())
    assert best["value"] == pytest.approx(reached)
    first = min(iteration for iteration, value in values.items() if value == reached)
    assert best["checkpoint"] == f"iteration-{first}"
    assert {path.name for path in (tmp_path / "checkpoints").glob("iteration-*")} >= {
        f"iteration-{first}",
        "iteration-3",
    }


def _logged(run: Path, tag: str) -> dict[int, float]:
    lines = csv.DictReader(next(run.rglob("metrics.csv")).open())
    values = [float(line[tag]) for line in lines if line.get(tag)]
    return dict(enumerate(values, start=1))
