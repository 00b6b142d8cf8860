"""Two processes that train together: they stop together, and a disk that is full for both leaves what was saved."""

import os
import signal
from pathlib import Path

import pytest
from faulty_run import ITERATIONS, assert_told, ended, finish, logged, start, wait_until
from process_tree import assert_over, listening, tree

from ngrpo.checkpoint.folders import complete_checkpoints, open_checkpoint

pytestmark = pytest.mark.faults
TWO = ("trainer.devices=2", "algo.optimizer_steps=2")


def assert_both_over(processes: list[int], seconds: float = 20) -> None:
    assert len(processes) == 4  # two ranks, each with one that checks answers
    assert_over(processes, seconds)  # the second rank may take a moment longer than the first


@pytest.mark.parametrize("whole_group", [True, False], ids=["both", "the_first"])
def test_a_signal_stops_both_after_the_same_iteration(tmp_path: Path, whole_group: bool) -> None:
    run = tmp_path / "run"
    process = start(run, *TWO, "callbacks.checkpoint.every=100", start_new_session=True)
    wait_until(lambda: f"iteration 2/{ITERATIONS}" in logged(run), process, run)
    processes = tree(process.pid)
    if whole_group:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.send_signal(signal.SIGTERM)
    status, said = ended(process, run)
    assert status == 143
    (checkpoint,) = complete_checkpoints(run)
    open_checkpoint(checkpoint)
    done = int(checkpoint.name.removeprefix("iteration-"))
    assert 2 <= done < ITERATIONS
    assert said.splitlines()[-1] == (
        f"stopped by SIGTERM after iteration {done} of {ITERATIONS}; the last checkpoint is of iteration {done}: "
        f"resume with ckpt={run}"
    )
    assert_both_over(processes)
    status, said = finish(run, *TWO, f"trainer.iterations={done + 1}", "ckpt=latest")
    assert status == 0, said
    assert complete_checkpoints(run)[-1].name == f"iteration-{done + 1}"


def test_a_second_process_that_waits_does_not_outlive_a_first_that_is_killed(tmp_path: Path) -> None:
    run, marker = tmp_path / "run", tmp_path / "stuck"
    stuck = ("+callbacks.stuck._target_=poison.Stuck", "+callbacks.stuck.iteration=2")
    process = start(run, *TWO, *stuck, f"+callbacks.stuck.marker={marker}")
    wait_until(marker.exists, process, run)
    processes = tree(process.pid)
    process.kill()
    process.wait()
    assert_both_over(processes, seconds=60)
    status, said = finish(run, *TWO, "trainer.iterations=4", "ckpt=latest")
    assert status == 0, said


def test_a_second_process_does_not_outlive_a_first_that_is_killed_while_it_starts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, *TWO)
    wait_until(lambda: len(tree(process.pid)) > 1, process, run)  # no watch is on: it imports
    processes = tree(process.pid)
    process.kill()
    process.wait()
    assert_over(processes, seconds=90)


def test_a_second_process_that_is_killed_is_named_by_the_first(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, *TWO)
    wait_until(lambda: f"iteration 2/{ITERATIONS}" in logged(run), process, run)
    processes = tree(process.pid)
    assert listening(processes) == {"0100007F"}  # 127.0.0.1, and no other interface
    (second,) = (pid for pid in processes[1:] if "scripts/train.py" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(second, signal.SIGKILL)
    status, said = ended(process, run)
    assert status == 1
    killed = "error: the training process of rank 1 was killed by SIGKILL, as the kernel does when memory runs out; "
    assert killed in said
    assert said.splitlines()[-1].endswith(f": resume with ckpt={run}.")
    assert_both_over(processes)


def test_a_full_disk_stops_both_and_leaves_what_was_saved(small_disk: Path, tmp_path: Path) -> None:
    run = small_disk / "run"
    run.mkdir()
    Path(f"{run}.out").symlink_to(tmp_path / "out")
    process = start(run, *TWO, "callbacks.checkpoint.keep=5")
    wait_until(lambda: f"iteration 1/{ITERATIONS}" in logged(run), process, run)
    processes = tree(process.pid)
    status, said = ended(process, run)
    assert status == 1
    assert_told(said, run, failed=3, kept=2)
    assert_both_over(processes)
