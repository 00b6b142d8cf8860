"""Pipes whose reader goes away, and terminals that hang up."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from faulty_run import (
    ITERATIONS,
    LIMIT_S,
    Undisturbed,
    assert_equal_states,
    ended,
    final_state,
    logged,
    start,
    wait_until,
)
from process_tree import assert_over, tree

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "both"])
def test_a_run_outlives_the_reader_of_its_output(undisturbed: Undisturbed, tmp_path: Path, both: bool) -> None:
    run = tmp_path / "run"
    with (tmp_path / "stderr").open("w") as stderr:
        process = start(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if both else stderr)
    assert process.stdout is not None
    for _ in range(3):  # | head -3
        process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT_S) == 0
    assert (tmp_path / "stderr").read_text() == ""
    assert logged(run).count("stdout is gone (Broken pipe): the run continues, and writes to its log only") == 1
    assert f"iteration {ITERATIONS}/{ITERATIONS}" in logged(run)
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))


def hung_up(run: Path, **more: object) -> subprocess.Popen[str]:
    """Hangs up, on all processes of the run, after the second iteration."""
    process = start(run, "callbacks.checkpoint.every=100", start_new_session=True, **more)
    wait_until(lambda: f"iteration 2/{ITERATIONS}" in logged(run), process, run)
    os.killpg(process.pid, signal.SIGHUP)
    os.killpg(process.pid, signal.SIGHUP)  # by the shell, and by the kernel when that is gone
    return process


def test_hanging_up_finishes_the_iteration_and_saves(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = hung_up(
        run, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
    )  # these tests may have nohup
    processes = tree(process.pid)
    status, said = ended(process, run)
    assert status == 128 + signal.SIGHUP
    done = int((run / "checkpoints" / "latest").read_text().removeprefix("iteration-"))
    last = (
        f"stopped by SIGHUP after iteration {done} of {ITERATIONS}; the last checkpoint is of iteration {done}: resume "
        f"with ckpt={run}"
    )
    assert said.splitlines()[-1] == last
    assert logged(run).splitlines()[-1].endswith(last)
    assert len(processes) == 2  # with the one that checks answers, which was still needed
    assert_over(processes, 20)


def test_a_run_behind_nohup_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = hung_up(run, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert ended(process, run)[0] == 0
    assert f"iteration {ITERATIONS}/{ITERATIONS}" in logged(run)
