"""An exception of a strategy's own code, in training, evaluation and samples: shown with its file and line."""

from pathlib import Path

import pytest
from forked import HELPERS, server
from places import ROOT

pytestmark = pytest.mark.faults
COMMANDS = {
    "train": ("train.py", "debug=fast", "trainer=cpu", "reward.workers=1", "exploration=neighbor", "exploration"),
    "evaluate": (
        "evaluate.py", "accelerator=cpu", "n=4", "benchmark.demo.problems=2", "reward.workers=1",
        "+evaluator.exploration.rate=0.5", "+evaluator.exploration",
    ),
    "sample": ("sample.py", "demo", "What is 3 + 4?", "accelerator=cpu", "n=4", "exploration=neighbor", "exploration"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("strategy", ["FailingStrategy", "FailingInputs", "FailingTables", "FailingSchedule"])
def test_its_author_sees_file_and_line(tmp_path: Path, command: str, strategy: str) -> None:
    *words, group = COMMANDS[command]
    done = server().run(
        (*words, f"{group}._target_=poison.{strategy}", "rollout=torch"), tmp_path,
        {"PYTHONPATH": f"{ROOT}:{HELPERS}"}, limit_s=100, path=[HELPERS],
    )  # fmt: skip
    assert done.status == 1, done.said[-3000:]
    assert f'File "{HELPERS}/poison.py", line ' in done.said, done.said[-3000:]
    assert done.said.splitlines()[-1] == "KeyError: 'a typing error of the author'", done.said[-3000:]
    assert "rollout engine failed" not in done.said
