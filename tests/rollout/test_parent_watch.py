import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def killed(kind: str) -> int:
    """Starts training and engine, kills the first, and returns the pid of the second."""
    command = [sys.executable, str(HERE / "watched_process.py"), kind]
    path = os.pathsep.join([str(HERE.parents[1]), *sys.path])
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}, text=True) as trainer:
        assert trainer.stdout is not None
        engine = int(trainer.stdout.readline())
        assert running(engine)
        assert trainer.poll() is None
        trainer.kill()
        trainer.stdout.close()
    return engine


def running(pid: int) -> bool:
    """Whether a process is there, and not just waiting to be forgotten."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_engine_ends_when_its_trainer_is_killed() -> None:
    engine = killed("named")
    deadline = time.monotonic() + 20
    while running(engine):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_of_someone_else_stays() -> None:
    engine = killed("nameless")
    time.sleep(1)
    assert running(engine)
    os.kill(engine, signal.SIGKILL)
