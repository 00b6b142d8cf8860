"""SIGTERM, Ctrl-C and a time limit: the iteration is finished and saved; twice means now."""

import signal
from pathlib import Path

import pytest
from faulty_run import (
    ITERATIONS,
    Undisturbed,
    assert_equal_states,
    ended,
    final_state,
    finish,
    logged,
    start,
    wait_until,
)

pytestmark = pytest.mark.faults


def stopped(run: Path, *signals: signal.Signals) -> tuple[int, str]:
    """Sends signals once the second iteration is done; the run saves nothing of its own accord."""
    process = start(run, "callbacks.checkpoint.every=100")
    wait_until(lambda: f"iteration 2/{ITERATIONS}" in logged(run), process, run)
    for number in signals:
        process.send_signal(number)
    return ended(process, run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_iteration_and_saves(
    undisturbed: Undisturbed, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    status, said = stopped(run, number)
    assert status == 128 + number
    done = int((run / "checkpoints" / "latest").read_text().removeprefix("iteration-"))
    assert 2 <= done < ITERATIONS
    assert said.splitlines()[-1] == (
        f"stopped by {number.name} after iteration {done} of {ITERATIONS}; the last checkpoint is of iteration {done}: "
        f"resume with ckpt={run}"
    )
    if number is signal.SIGINT:
        return
    again = tmp_path / "again"
    assert finish(again, f"ckpt={run}")[0] == 0
    assert_equal_states(undisturbed.state, final_state(again, ITERATIONS))


def test_twice_means_now(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, "callbacks.checkpoint.every=100", "rollout.max_new_tokens=128")
    wait_until(lambda: f"iteration 1/{ITERATIONS}" in logged(run), process, run)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: "once more stops at once" in Path(f"{run}.out").read_text(), process, run)
    process.send_signal(signal.SIGTERM)
    status, said = ended(process, run)
    last = said.splitlines()[-1]
    assert (status, last) == (143, "SIGTERM twice: stopped at once; there is no checkpoint to resume from")


def test_the_time_limit_stops_the_same_way(tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, said = finish(run, "trainer.iterations=1000", "trainer.max_time=1s", "callbacks.checkpoint.every=100")
    assert status == 0
    last = said.splitlines()[-1]
    assert last.startswith("stopped by trainer.max_time after iteration ")
    assert last.endswith(f": resume with ckpt={run}")
    assert (run / "checkpoints" / "latest").exists()
