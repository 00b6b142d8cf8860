"""Three hundred iterations with everything on: no process grows, and nothing is left when they are over."""

import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from faulty_run import ended, environment, logged, start
from process_tree import Holding, holding, shared_memory, tree

pytestmark = [pytest.mark.faults, pytest.mark.slow]
ITERATIONS = 300
SETTINGS = (
    "exploration=neighbor", "debug=fast", f"trainer.iterations={ITERATIONS}", "trainer=cpu", "algo.optimizer_steps=1",
    "algo.prompts_per_batch=2", "rollout.max_new_tokens=16", "exploration.refresh_every=5", "data.eval_problems=4",
    "callbacks.evaluation.every=10", "callbacks.checkpoint.every=10", "callbacks.run_record.page_every=50",
)  # fmt: skip
MOST_GROWTH = 1.05


@dataclass(frozen=True)
class Reading:
    """What all processes hold after some iterations, by process."""

    iteration: int
    held: dict[int, Holding]
    shared: frozenset[str]


def read(process: subprocess.Popen[str], run: Path) -> Reading:
    done = re.findall(r"iteration (\d+)/", logged(run))
    pids = tree(process.pid)
    held = {pid: found for pid in pids if (found := holding(pid)) is not None}
    return Reading(int(done[-1]) if done else 0, held, frozenset().union(*map(shared_memory, pids)))


def watched(run: Path, scratch: Path) -> list[Reading]:
    """Runs to the end, with temporary files in a folder of their own."""
    process = start(run, settings=SETTINGS, env=environment() | {"TMPDIR": str(scratch)})
    readings = []
    while process.poll() is None:
        readings.append(read(process, run))
        time.sleep(0.2)
    status, said = ended(process, run)
    assert status == 0, said
    return readings


def between(readings: list[Reading], first: int, last: int) -> list[Reading]:
    return [reading for reading in readings if first <= reading.iteration < last]


def test_nothing_grows_and_nothing_is_left(tmp_path: Path) -> None:
    run, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    readings = watched(run, scratch)
    early, late = between(readings, 50, 100), between(readings, ITERATIONS - 50, ITERATIONS)
    assert min(len(early), len(late)) > 10

    # The processes are the same ones all the while: the trainer and those that check answers.
    processes = set(early[0].held)
    assert len(processes) == 3
    assert all(set(reading.held) == processes for reading in between(readings, 50, ITERATIONS))
    for pid in processes:
        for what in ("resident", "private", "files"):
            before, after = (statistics.median(getattr(r.held[pid], what) for r in part) for part in (early, late))
            assert after <= MOST_GROWTH * before, (early[0].held[pid].command, what, before, after)
    assert {r.shared for r in between(readings, 50, ITERATIONS)} == {early[0].shared}

    ever = {pid for reading in readings for pid in reading.held}
    assert not [pid for pid in ever if Path(f"/proc/{pid}").exists()]
    assert not [name for reading in readings for name in reading.shared if Path("/dev/shm", name).exists()]
    assert os.listdir(scratch) == []
    assert not [*run.rglob("*.tmp"), *run.rglob("*.old")]
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"iteration-290", "iteration-300", "latest"}
    assert len(list((run / "record" / "rollouts").iterdir())) == 12
