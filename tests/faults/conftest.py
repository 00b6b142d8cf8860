"""An undisturbed run that all others are compared with, however the tests are shared out, and a disk that fills up."""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_run import CHECKPOINT_BYTES, ITERATIONS, Undisturbed, ended, final_state, logged, start, wait_until


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The run of ``ITERATIONS`` iterations that nobody killed; the first that asks makes it, the others wait."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "undisturbed"
    shared.mkdir(exist_ok=True)
    run, timed = shared / "run", shared / "seconds.json"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not timed.exists():
            timed.write_text(json.dumps(made(run)))
    return Undisturbed(final_state(run, ITERATIONS), json.loads(timed.read_text()))


def made(run: Path) -> float:
    process = start(run)
    wait_until(lambda: "run folder" in logged(run), process, run)
    begun = time.monotonic()
    wait_until(lambda: f"iteration {ITERATIONS}/{ITERATIONS}" in logged(run), process, run)
    seconds = time.monotonic() - begun
    assert ended(process, run)[0] == 0
    return seconds


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Room for two checkpoints and a little more."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = 2 * CHECKPOINT_BYTES + 6_000_000
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
