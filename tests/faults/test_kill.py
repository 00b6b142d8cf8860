"""Twenty kill -9 at seeded moments of a run of 12 iterations; each, resumed, ends bit-equal to the undisturbed run."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faulty_run import assert_equal_states, ended, final_state, finish, logged, start, wait_until

from ngrpo.checkpoints import complete, iteration_of, opened, resolve

pytestmark = pytest.mark.faults
ITERATIONS = 12
OVERRIDES = (f"trainer.iterations={ITERATIONS}", "callbacks.checkpoint.keep=2")
AT_RANDOM, WHILE_SAVING = 16, (2, 5, 8, 11)


class Undisturbed:
    """The run that nobody killed: its last state, and the seconds from its first log line to its last iteration."""

    def __init__(self, folder: Path) -> None:
        process = start(folder, *OVERRIDES)
        wait_until(lambda: "run folder" in logged(folder), process, folder)
        begun = time.monotonic()
        wait_until(lambda: f"iteration {ITERATIONS}/{ITERATIONS}" in logged(folder), process, folder)
        self.seconds = time.monotonic() - begun
        assert ended(process, folder)[0] == 0
        self.state: dict[str, Any] = final_state(folder, ITERATIONS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("straight") / "run")


def kill_at(run: Path, delay: float) -> None:
    """So many seconds after the first log line: starting the engine, generating, scoring, updating, saving."""
    process = start(run, *OVERRIDES)
    wait_until(lambda: "run folder" in logged(run), process, run)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


def kill_while_saving(run: Path, iteration: int) -> None:
    """As soon as the folder is there that the checkpoint is written into."""
    process = start(run, *OVERRIDES)
    unfinished = run / "checkpoints" / f"iteration-{iteration}.tmp"
    wait_until(unfinished.exists, process, run)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (unfinished.parent / f"iteration-{iteration}").exists()


def resumed(run: Path, undisturbed: Undisturbed) -> int:
    """Goes on in the same folder and compares; returns the iterations that were not lost."""
    found = complete(run)
    for checkpoint in found:
        opened(checkpoint)
    last = iteration_of(resolve("latest", run, run.parent)) if found else 0
    if last < ITERATIONS:
        status, said = finish(run, *OVERRIDES, *(["ckpt=latest"] if found else []))
        assert status == 0, said
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))
    left = {path.name for path in (run / "checkpoints").iterdir()}
    assert left == {f"iteration-{ITERATIONS - 1}", f"iteration-{ITERATIONS}", "latest"}
    return last


def test_twenty_kills(undisturbed: Undisturbed, tmp_path: Path) -> None:
    moments = random.Random(7)
    delays = [moments.uniform(0.0, undisturbed.seconds) for _ in range(AT_RANDOM)]

    def one(number: int) -> int:
        run = tmp_path / f"run{number}"
        if number < AT_RANDOM:
            kill_at(run, delays[number])
        else:
            kill_while_saving(run, WHILE_SAVING[number - AT_RANDOM])
        return resumed(run, undisturbed)

    with ThreadPoolExecutor(2) as pool:
        kept = list(pool.map(one, range(AT_RANDOM + len(WHILE_SAVING))))
    assert kept[AT_RANDOM:] == [iteration - 1 for iteration in WHILE_SAVING]
    assert len(set(kept)) > 4, "the moments are spread over the run"
