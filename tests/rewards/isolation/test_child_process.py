"""Child processes: replies, exceptions, hanging, dying, and what is left of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.rewards.isolation.child_process import _LIMIT, ChildProcess, ProcessDied
from ngrpo.utils.remote_error import RemoteError

LIMIT_S = 60.0
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers")])}


@pytest.fixture(scope="module")
def shared() -> Iterator[ChildProcess]:
    child = ChildProcess("child_service", {**ENVIRONMENT, "GREETING": "hello"})
    yield child
    child.kill()


@pytest.fixture
def child(shared: ChildProcess) -> ChildProcess:
    """A child that runs."""
    if shared.pid is None:
        assert shared.start(b"settings", LIMIT_S) == b"settings"
    return shared


def pid_of(child: ChildProcess) -> int:
    assert child.pid is not None
    return child.pid


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_it_replies_to_one_request_after_the_other(child: ChildProcess) -> None:
    messages = [b"", b"1", bytes(range(256)), bytes(10**7)]
    assert [child.call(message, LIMIT_S) for message in messages] == messages


def test_it_has_its_own_environment_and_group(child: ChildProcess) -> None:
    assert child.call(b"environment", LIMIT_S).decode() == f"{os.getcwd()}|hello|True"


def test_its_exceptions_come_back_with_their_place_and_it_goes_on(child: ChildProcess) -> None:
    pid = child.pid
    with pytest.raises(RemoteError) as caught:
        child.call(b"raise", LIMIT_S)
    assert (repr(caught.value), str(caught.value)) == (
        "KeyError('no such key')",
        "KeyError('no such key') in child_service.py:26",
    )
    assert child.call(b"1", LIMIT_S) == b"1"
    assert child.pid == pid


@pytest.mark.parametrize("request_", [b"hang", b"hold"])
def test_a_request_that_takes_too_long_costs_its_limit_and_the_process(child: ChildProcess, request_: bytes) -> None:
    pid, start = pid_of(child), time.monotonic()
    with pytest.raises(TimeoutError):
        child.call(request_, 0.5)
    assert 0.5 <= time.monotonic() - start < 4
    assert (child.pid, runs(pid)) == (None, False)


@pytest.mark.parametrize("size", [1, 10**7])
def test_a_child_that_is_stopped_is_killed_whether_it_is_sent_much_or_little(child: ChildProcess, size: int) -> None:
    pid = pid_of(child)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        child.call(bytes(size), 0.5)
    assert not runs(pid)


def test_a_child_that_dies_is_no_child_any_more(child: ChildProcess) -> None:
    pid = pid_of(child)
    with pytest.raises(ProcessDied):
        child.call(b"die", LIMIT_S)
    assert (child.pid, runs(pid)) == (None, False)
    with pytest.raises(ProcessDied):
        child.call(b"1", LIMIT_S)


def test_an_interrupted_call_leaves_no_late_reply(child: ChildProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            child.call(b"hang", LIMIT_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert child.pid is None


def test_a_start_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    child = ChildProcess("child_service", ENVIRONMENT)
    with pytest.raises(RemoteError, match=r"ValueError\('refused'\) in child_service.py:\d+"):
        child.start(b"refuse", LIMIT_S)
    assert child.pid is None
    with pytest.raises(TimeoutError):
        child.start(b"hang", 2.0)
    assert child.pid is None
    with pytest.raises(ProcessDied):
        ChildProcess("no_such_module", ENVIRONMENT).start(b"", LIMIT_S)


def test_a_child_that_was_ready_long_ago_is_not_too_late() -> None:
    child = ChildProcess("child_service", ENVIRONMENT)
    child.begin(b"settings", 3.0)
    pid = pid_of(child)
    time.sleep(4.0)
    assert child.started(3.0) == b"settings"
    assert child.call(b"1", LIMIT_S) == b"1"
    assert pid_of(child) == pid
    child.kill()


def test_nothing_is_left_when_it_is_forgotten() -> None:
    child = ChildProcess("child_service", ENVIRONMENT)
    child.start(b"", LIMIT_S)
    pid = pid_of(child)
    del child
    assert not runs(pid)


def test_a_request_that_hangs_ends_by_itself_if_nobody_kills_it(child: ChildProcess) -> None:
    process, channel = child._running[0]
    channel.send(_LIMIT.pack(0.5) + b"hold")
    assert process.wait(timeout=20) == -signal.SIGALRM
    child.kill()


def test_it_ends_when_its_parent_is_killed() -> None:
    script = (
        "from ngrpo.rewards.isolation.child_process import ChildProcess\n"
        f"child = ChildProcess('child_service', {ENVIRONMENT})\n"
        "child.start(b'', 60.0); print(child.pid, flush=True); input()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert runs(pid)
        parent.kill()
    deadline = time.monotonic() + 10
    while runs(pid) and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
