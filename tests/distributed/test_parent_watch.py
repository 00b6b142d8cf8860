import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT
from process_tree import assert_over, holding

from ngrpo.distributed.parent_watch import ending_children


def killed(how: str, kind: str, grace_s: float) -> int:
    """Starts a process and its child, kills the first, and returns the pid of the second."""
    command = [sys.executable, str(ROOT / "tests/helpers/watched_process.py"), how, kind, str(grace_s)]
    path = os.pathsep.join([str(ROOT), *sys.path])
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert holding(child) is not None
        assert parent.poll() is None
        parent.kill()
        parent.stdout.close()
    return child


@pytest.mark.parametrize("how", ["spawn", "popen"])
def test_a_child_ends_when_its_parent_is_killed(how: str) -> None:
    assert_over([killed(how, "ending", 0.0)], 20)


@pytest.mark.parametrize(("kind", "grace_s"), [("ending", 100.0), ("leaving", 0.0)])
def test_a_child_stays_during_its_grace_or_if_nobody_asked(kind: str, grace_s: float) -> None:
    child = killed("spawn", kind, grace_s)
    time.sleep(2)
    assert holding(child) is not None
    os.kill(child, signal.SIGKILL)


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRPO_PARENT_PID", "1")
    before = dict(os.environ)
    with ending_children():
        assert os.environ["NGRPO_PARENT_PID"] == str(os.getpid())
    assert dict(os.environ) == before
    monkeypatch.delenv("NGRPO_PARENT_PID")
    with ending_children():
        pass
    assert "NGRPO_PARENT_PID" not in os.environ


def run_here(call: str) -> subprocess.Popen[str]:
    """A process, in a session of its own, that is past a call of this module."""
    code = f"import time, ngrpo.distributed.parent_watch as watch; watch.{call}(); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("call", "ignored", "deadly"),
    [
        ("leave_signals_to_parent", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1), signal.SIGKILL),
        ("leave_group", (signal.SIGHUP, signal.SIGUSR1), signal.SIGTERM),
    ],
)
def test_what_stops_a_run_does_not_end_the_processes_that_it_needs(
    call: str, ignored: tuple[signal.Signals, ...], deadly: signal.Signals
) -> None:
    with run_here(call) as process:
        for number in ignored:
            process.send_signal(number)
        time.sleep(0.3)
        assert process.poll() is None
        assert process.stdout is not None
        process.send_signal(deadly)
        assert process.wait(20) == -deadly


def test_a_process_leaves_its_group(tmp_path: Path) -> None:
    code = "import os, ngrpo.distributed.parent_watch as watch; watch.leave_group(); print(os.getpgrp() == os.getpid())"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"


def test_a_child_that_starts_after_its_parent_was_killed_ends_at_once() -> None:
    with subprocess.Popen(["true"]) as parent:
        parent.wait()
    code = "import ngrpo.distributed.parent_watch as watch; watch.end_with_parent(60.0); print('started')"
    environment = os.environ | {"NGRPO_PARENT_PID": str(parent.pid)}
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True)
    assert (child.returncode, child.stdout) == (-signal.SIGKILL, b"")
