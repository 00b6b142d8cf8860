"""Twenty kill -9 at seeded moments of a run of 12 iterations; each, resumed, ends bit-equal to the undisturbed run."""

import random
import signal
import time
from pathlib import Path

import pytest
from faulty_run import ITERATIONS, Undisturbed, assert_equal_states, final_state, finish, logged, start, wait_until

from ngrpo.checkpoint.folders import complete_checkpoints, iteration_of, open_checkpoint, resolve

pytestmark = pytest.mark.faults
AT_RANDOM, WHILE_SAVING = 16, (2, 5, 8, 11)


def goes_on(run: Path, undisturbed: Undisturbed) -> int:
    """Resumes in the same folder and compares; returns the iterations that were not lost."""
    found = complete_checkpoints(run)
    for checkpoint in found:
        open_checkpoint(checkpoint)
    last = iteration_of(resolve("latest", run, run.parent)) if found else 0
    if last < ITERATIONS:
        status, said = finish(run, *(["ckpt=latest"] if found else []))
        assert status == 0, said
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))
    left = {path.name for path in (run / "checkpoints").iterdir()}
    kept = {f"iteration-{ITERATIONS - 1}", f"iteration-{ITERATIONS}", "latest"}
    # Killed after the last checkpoint and before the removal of older ones: no resume is left that would remove them.
    assert left == kept or (last == ITERATIONS and left > kept)
    return last


@pytest.mark.parametrize("part", range(AT_RANDOM))
def test_killed_at_a_random_moment(undisturbed: Undisturbed, tmp_path: Path, part: int) -> None:
    """A moment of each sixteenth of the run: starting the engine, generating, scoring, updating, saving."""
    run = tmp_path / "run"
    delay = (part + random.Random(part).random()) / AT_RANDOM * undisturbed.seconds
    process = start(run)
    wait_until(lambda: "run folder" in logged(run), process, run)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    goes_on(run, undisturbed)


@pytest.mark.parametrize("iteration", WHILE_SAVING)
def test_killed_while_saving(undisturbed: Undisturbed, tmp_path: Path, iteration: int) -> None:
    """As soon as the folder is there that the checkpoint is written into: the one before it is what is left."""
    run = tmp_path / "run"
    process = start(run)
    unfinished = run / "checkpoints" / f"iteration-{iteration}.tmp"
    wait_until(unfinished.exists, process, run)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (unfinished.parent / f"iteration-{iteration}").exists()
    assert goes_on(run, undisturbed) == iteration - 1
