"""What is said of another training process that ends before its time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from process_tree import assert_over

from ngrpo.entrypoints.rank_watch import sentence

LOG = (
    "[2026-01-01 00:00:00,000][ngrpo.entrypoints.train][INFO] run folder\n"
    "[2026-01-01 00:00:00,000][ngrpo.utils.standard_streams][ERROR] {}\n"
)


@pytest.mark.parametrize(
    ("status", "logged", "said"),
    [
        (-9, "x.", "was killed by SIGKILL, as the kernel does when memory runs out; "),
        (-11, None, "was killed by SIGSEGV; "),
        (1, "the disk is full.", "ended with status 1 after saying: the disk is full; "),
        (3, None, "ended with status 3; "),
    ],
)
def test_the_sentence(status: int, logged: str | None, said: str, tmp_path: Path) -> None:
    if logged is not None:
        (tmp_path / "train_ddp_process_2.log").write_text(LOG.format(logged))
    whole = f"the training process of rank 2 {said}there is no checkpoint to resume from."
    assert sentence(2, status, tmp_path) == whole


WATCHING = """
import subprocess, sys, time
from pathlib import Path
from lightning.pytorch.strategies.launchers import subprocess_script
from ngrpo.entrypoints import rank_watch
from ngrpo.entrypoints.error_handling import sentence
rank_watch._GRACE_S = 0.5
before = subprocess_script._launch_process_observer
assert rank_watch.cause() is None
with rank_watch.watching_ranks(Path(sys.argv[1])):
    commands = (["sleep", "60"], ["bash", "-c", "exit 4"]) if sys.argv[2] == "dies" else (["true"], ["true"])
    processes = [subprocess.Popen(command) for command in commands]
    subprocess_script._launch_process_observer(processes)
    if sys.argv[2] == "dies":
        print(sentence(RuntimeError("Connection closed by peer")), processes[0].pid, flush=True)
    time.sleep(1 if sys.argv[2] == "lives" else 60)
assert subprocess_script._launch_process_observer is before
"""


def watching(what: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WATCHING, str(folder), what]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def test_the_first_process_ends_and_says_why(tmp_path: Path) -> None:
    done = watching("dies", tmp_path)
    said = "the training process of rank 2 ended with status 4; there is no checkpoint to resume from."
    assert (done.returncode, done.stderr) == (1, f"error: {said}\n")
    assert done.stdout.startswith(f"{said} ")
    assert_over([int(done.stdout.split()[-1])], 20)


def test_processes_that_end_in_order_end_nothing(tmp_path: Path) -> None:
    done = watching("lives", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
