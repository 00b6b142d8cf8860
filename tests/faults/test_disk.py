"""A disk that fills up, and one folder for two runs."""

import resource
import signal
from pathlib import Path

import pytest
from faulty_run import (
    CHECKPOINT_BYTES,
    ITERATIONS,
    Undisturbed,
    assert_equal_states,
    assert_told,
    ended,
    final_state,
    finish,
    logged,
    start,
    wait_until,
)

pytestmark = pytest.mark.faults


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHECKPOINT_BYTES, CHECKPOINT_BYTES))


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before_it(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, "trainer.iterations=2")[0] == 0
    status, said = finish(run, "ckpt=latest", preexec_fn=limit_files)
    assert status == 1
    assert_told(said, run, failed=3, kept=2)
    assert finish(run, "ckpt=latest")[0] == 0
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))


def test_a_full_disk_leaves_both_checkpoints(small_disk: Path, tmp_path: Path) -> None:
    run = small_disk / "run"
    run.mkdir()
    Path(f"{run}.out").symlink_to(tmp_path / "out")  # what is printed goes to another disk
    status, said = finish(run, "callbacks.checkpoint.keep=5")
    assert status == 1
    assert_told(said, run, failed=3, kept=2)


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each file was last written, and what it holds."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path) -> None:
    run, second = tmp_path / "run", tmp_path / "second"
    first = start(run, "trainer.iterations=1000")
    wait_until(lambda: "iteration 1/1000" in logged(run), first, run)
    first.send_signal(signal.SIGSTOP)  # it holds the folder, and what changes is the other's doing
    before = contents(run)
    process = start(second, "trainer.iterations=2", f"hydra.run.dir={run}")
    status, said = ended(process, second)
    assert status == 1
    assert said == (
        f"error: hydra.run.dir={run} is being written by another process; wait for it, or choose another folder.\n"
    )
    assert run / ".hydra" / "overrides.yaml" in before
    assert contents(run) == before
    first.send_signal(signal.SIGCONT)
    lines = len(logged(run).splitlines())
    wait_until(lambda: len(logged(run).splitlines()) > lines + 1, first, run)
    first.kill()
    first.wait()
