"""A run with rollouts in vLLM, killed or stopped, goes on as if nothing had been."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from places import ROOT
from process_tree import assert_over, tree

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ITERATIONS = 4
LIMIT_S = 400
LEFT_S = 30
"""In which the processes of a run have to end that is killed."""
SETTINGS = (
    "rollout=vllm", "exploration=neighbor", "exploration.rate=0.5", "exploration.refresh_every=2", "algo=gspo",
    "debug=fast", f"trainer.iterations={ITERATIONS}", "trainer.accelerator=cpu", "callbacks.evaluation=null",
    "callbacks.export=null", "callbacks.checkpoint.every=1", "callbacks.checkpoint.keep=9",
)  # fmt: skip


def start(run: Path, *overrides: str) -> subprocess.Popen[str]:
    with Path(f"{run}.out").open("w") as out:
        return subprocess.Popen(
            [sys.executable, "scripts/train.py", *SETTINGS, f"hydra.run.dir={run}", *overrides],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=out, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def finish(run: Path, *overrides: str) -> None:
    assert start(run, *overrides).wait(LIMIT_S) == 0, Path(f"{run}.out").read_text()[-4000:]


def interrupt(run: Path, number: signal.Signals, *overrides: str) -> int:
    """Sends a signal once the second iteration is saved; returns the exit status when nothing of the run is left."""
    process = start(run, *overrides)
    deadline = time.monotonic() + LIMIT_S
    while not (run / "checkpoints" / "iteration-2").exists():
        assert process.poll() is None, Path(f"{run}.out").read_text()[-4000:]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    processes = tree(process.pid)
    process.send_signal(number)
    status = process.wait(LIMIT_S)
    assert_over(processes, LEFT_S)
    return status


def state(run: Path) -> dict[str, Any]:
    saved: dict[str, Any] = torch.load(
        run / "checkpoints" / f"iteration-{ITERATIONS}" / "state.ckpt", weights_only=True
    )
    return saved


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = tmp_path_factory.mktemp("vllm") / "straight"
    finish(run)
    return state(run)


@pytest.mark.parametrize(
    ("number", "status", "beside"),
    [
        (signal.SIGKILL, -signal.SIGKILL, False),
        (signal.SIGKILL, -signal.SIGKILL, True),
        (signal.SIGTERM, 143, False),
    ],
)
def test_resume_is_exact(
    tmp_path: Path, undisturbed: dict[str, Any], number: signal.Signals, status: int, beside: bool
) -> None:
    run, engine = tmp_path / "run", f"rollout.engine.own_process={beside}"
    assert interrupt(run, number, engine) == status
    assert not (run / "checkpoints" / f"iteration-{ITERATIONS}").exists()
    finish(run, engine, "ckpt=latest")
    resumed = state(run)
    assert resumed["state_dict"].keys() == undisturbed["state_dict"].keys()
    for name, tensor in undisturbed["state_dict"].items():
        assert torch.equal(tensor, resumed["state_dict"][name]), name
    tables = [saved["callbacks"]["RolloutCallback"]["tables"]["neighbors"] for saved in (undisturbed, resumed)]
    assert torch.equal(*tables)
