"""A disk that fills up, and one folder for two runs."""

import resource
import signal
import subprocess
from collections.abc import Iterator
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

from ngrpo.checkpoints import complete, opened

pytestmark = pytest.mark.faults
CHECKPOINT_BYTES = 8_000_000
"""Somewhat less than a checkpoint of the demo has."""


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHECKPOINT_BYTES, CHECKPOINT_BYTES))


def assert_told(said: str, run: Path, failed: int, kept: int) -> None:
    last = said.splitlines()[-1]
    assert last.startswith(f"error: {run}/checkpoints/iteration-{failed} could not be written (")
    assert last.endswith(f"; free some space; the last checkpoint is of iteration {kept}: go on with ckpt={run}.")
    for checkpoint in complete(run):
        opened(checkpoint)
    assert (run / "checkpoints" / "latest").read_text() == f"iteration-{kept}"
    assert not list((run / "checkpoints").glob("*.tmp"))


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before_it(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, "trainer.iterations=2")[0] == 0
    status, said = finish(run, "ckpt=latest", preexec_fn=limit_files)
    assert status == 1
    assert_told(said, run, failed=3, kept=2)
    assert finish(run, "ckpt=latest")[0] == 0
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))


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
