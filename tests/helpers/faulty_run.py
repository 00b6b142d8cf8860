"""The training script as a subprocess, for the tests that kill and starve it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from forked import HELPERS, server
from places import ROOT

from ngrpo.checkpoint.folders import complete_checkpoints, open_checkpoint

LIMIT_S = 300
ITERATIONS = 12
CHECKPOINT_BYTES = 8_000_000
"""Somewhat less than a checkpoint of the demo has."""

QUICK = (
    "exploration=neighbor", "debug=fast", "exploration.rate=0.5", "exploration.refresh_every=2",
    "callbacks.checkpoint.every=1", "callbacks.evaluation=null", "callbacks.export=null", "trainer=cpu",
    f"trainer.iterations={ITERATIONS}", "reward.workers=1",
)  # fmt: skip


@dataclass(frozen=True)
class Undisturbed:
    """A whole run: its state at the end, and the seconds from its first log line to its last iteration."""

    state: dict[str, Any]
    seconds: float


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}:{HELPERS}", "OMP_NUM_THREADS": "1"}


def start(run: Path, *overrides: str, settings: tuple[str, ...] = QUICK, **more: Any) -> subprocess.Popen[str]:
    """Starts a run; its output goes into ``<run>.out``."""
    command = [sys.executable, "scripts/train.py", *settings, f"hydra.run.dir={run}", *overrides]
    with Path(f"{run}.out").open("w") as out:
        streams = {"stdout": out, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, **({"env": environment()} | streams | more))


def finish(run: Path, *overrides: str, settings: tuple[str, ...] = QUICK, **more: Any) -> tuple[int, str]:
    """Runs to the end; returns the exit status and the output, which never holds a traceback through this program.

    A fork of a process that has imported everything, unless there is more to say of how a process is started.
    """
    if more:
        return ended(start(run, *overrides, settings=settings, **more), run)
    command = ("train.py", *settings, f"hydra.run.dir={run}", *overrides)
    path = {"PYTHONPATH": f"{ROOT}:{HELPERS}"}
    done = server().run(command, ROOT, path, limit_s=LIMIT_S, path=[HELPERS])
    assert done.status is not None, done.said[-4000:]
    check_no_traceback(done.said)
    return done.status, done.said


def check_no_traceback(said: str) -> None:
    """There is none through this program; that of a user's own code is shown alone."""
    assert f'File "{ROOT}/ngrpo/' not in said, said[-4000:]


def ended(process: subprocess.Popen[str], run: Path) -> tuple[int, str]:
    """Waits for the end; returns the exit status and the output, which never holds a traceback through this program."""
    status = process.wait(LIMIT_S)
    said = Path(f"{run}.out").read_text()
    check_no_traceback(said)
    return status, said


def wait_until(met: Callable[[], bool], process: subprocess.Popen[str], run: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not met():
        assert process.poll() is None, Path(f"{run}.out").read_text()[-4000:]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def logged(run: Path) -> str:
    log = run / "train.log"
    return log.read_text() if log.exists() else ""


def assert_told(said: str, run: Path, failed: int, kept: int) -> None:
    """A checkpoint could not be written; those before it are whole, and the user knows."""
    last = said.splitlines()[-1]
    assert last.startswith(f"error: {run}/checkpoints/iteration-{failed} could not be written (")
    assert last.endswith(f"; free some space; the last checkpoint is of iteration {kept}: resume with ckpt={run}.")
    for checkpoint in complete_checkpoints(run):
        open_checkpoint(checkpoint)
    assert (run / "checkpoints" / "latest").read_text() == f"iteration-{kept}"
    assert not list((run / "checkpoints").glob("*.tmp"))


def final_state(run: Path, iteration: int) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(
        run / "checkpoints" / f"iteration-{iteration}" / "state.ckpt", weights_only=True, map_location="cpu"
    )
    return state


def assert_equal_states(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Weights, optimiser, schedule, data position and everything the callbacks keep, times left out."""
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "loops"):
        assert_same(one[part], two[part], part)
    for name in one["callbacks"]:
        if name != "Summary":
            assert_same(one["callbacks"][name], two["callbacks"][name], name)


def assert_same(one: Any, two: Any, place: str) -> None:
    assert type(one) is type(two), place
    if isinstance(one, dict):
        assert one.keys() == two.keys(), place
        for key in one:
            assert_same(one[key], two[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(two), place
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same(a, b, f"{place}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, two), place
    else:
        assert one == two, place
