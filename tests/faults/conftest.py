"""One undisturbed run that all others are compared with, however many processes the tests are shared out to."""

import fcntl
import json
import os
import time
from pathlib import Path

import pytest
from faulty_run import ITERATIONS, Undisturbed, ended, final_state, logged, start, wait_until


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
