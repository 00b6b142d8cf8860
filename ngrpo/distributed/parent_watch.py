"""The watch that ends the processes of a run whose first process was killed.

A process that is killed (by the kernel for its memory, by a scheduler) ends none of those that it started. The engine
process of vLLM 0.32 then waits for requests for ever, with the workers that watch over it; another training process may
wait in a collective until its time-out. Both keep their GPUs, where the resumed run finds no memory.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread, current_thread, main_thread

from ngrpo.utils.environment_variable import environment_variable

_PARENT = "NGRPO_PARENT_PID"
_PAUSE_S = 0.5


@contextmanager
def ending_children() -> Iterator[None]:
    """Processes started meanwhile, if they call `end_with_parent`, end with this one."""
    with environment_variable(_PARENT, str(os.getpid())):
        yield


@cache
def end_with_parent(grace_s: float = 0.0) -> bool:
    """Watches, from now on, over the process that started this one, if it was in `ending_children`.

    If that one is no more, having been killed while this one was starting, this one ends at once.

    Args:
        grace_s: what is left to this process to end in order, in seconds.

    Returns:
        Whether it was.
    """
    parent = os.getppid()
    named = os.environ.get(_PARENT)
    if named is not None and named != str(parent) and not _lives(int(named)):
        os.kill(os.getpid(), signal.SIGKILL)  # killed while this one was starting
    watched = named == str(parent)
    if watched:
        Thread(target=_end_after, args=(parent, grace_s), name="ngrpo-parent-watch", daemon=True).start()
    return watched


def leave_signals_to_parent() -> None:
    """Ignores what asks a run to stop: the trainer still needs this process for its iteration, and ends it afterwards.

    A terminal, a scheduler or ``kill -- -GROUP`` sends these signals to all processes of a run.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def leave_group() -> None:
    """Takes this process out of what is sent to its group, and ignores a terminal that hangs up and SLURM's SIGUSR1.

    Unlike `leave_signals_to_parent` it leaves SIGTERM, by which vLLM ends its engine process.
    """
    if os.getsid(0) != os.getpid():  # which leads its group already
        os.setpgid(0, 0)
    if current_thread() is main_thread():
        for number in (signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)


def _lives(pid: int) -> bool:
    """Says whether a process is there, and not merely waiting to be taken note of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _end_after(parent: int, grace_s: float) -> None:
    while os.getppid() == parent:
        time.sleep(_PAUSE_S)
    time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGKILL)  # an orderly end would wait for threads that wait themselves
