"""The watch over the other training processes of this machine, and the reason why one of them ended.

Lightning's own watch kills the first process without a word; this one takes its place.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from lightning.pytorch.strategies.launchers import subprocess_script

from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.utils.standard_streams import log_to_files

_PAUSE_S = 0.2
_GRACE_S = 5.0
"""In which the first process may end in order: it has often failed of the same, or finds its connection broken."""

_STARTED, _ENDED = Event(), Event()
_said: list[str] = []
"""Why another process ended; once `_ENDED` is set."""


@contextmanager
def watching_ranks(run_dir: Path) -> Iterator[None]:
    """Watches over the processes that Lightning starts meanwhile; one that fails ends this one, which says why.

    Args:
        run_dir: the run's folder, with the logs of its processes.
    """
    theirs = subprocess_script._launch_process_observer
    subprocess_script._launch_process_observer = lambda processes: _start(processes, run_dir)
    try:
        yield
    finally:
        subprocess_script._launch_process_observer = theirs


def cause(wait_s: float = 2.0) -> str | None:
    """Returns why another process ended, in a sentence, if one has; waits a moment for it to be noticed."""
    return _said[0] if _STARTED.is_set() and _ENDED.wait(wait_s) else None


def sentence(rank: int, status: int, run_dir: Path) -> str:
    """Returns why a process ended.

    Args:
        rank: its number.
        status: its exit status, or minus the number of the signal that killed it.
        run_dir: the run's folder.
    """
    how = f"ended with status {status}"
    if status < 0:
        how = f"was killed by {signal.Signals(-status).name}"
        how += ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
    words = _last_words(run_dir / f"train_ddp_process_{rank}.log")
    said = f" after saying: {words}" if status > 0 and words else ""
    return f"the training process of rank {rank} {how}{said}; {how_to_resume(run_dir)}."


def _last_words(log: Path) -> str | None:
    """Returns the last error in a log, without its full stop."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line.partition("[ERROR] ")[2] for line in lines if "[ERROR] " in line]
    return errors[-1].rstrip(".") if errors else None


def _start(processes: Sequence["subprocess.Popen[bytes]"], run_dir: Path) -> None:
    _STARTED.set()
    Thread(target=_watch, args=(processes, run_dir), name="ngrpo-rank-watch", daemon=True).start()


def _watch(processes: Sequence["subprocess.Popen[bytes]"], run_dir: Path) -> None:
    while True:
        statuses = [process.poll() for process in processes]
        if all(status == 0 for status in statuses):
            return
        failed = [(rank, status) for rank, status in enumerate(statuses, start=1) if status]
        if failed:
            break
        time.sleep(_PAUSE_S)
    _said.append(sentence(*failed[0], run_dir))
    _ENDED.set()
    time.sleep(_GRACE_S)
    _end(processes)


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Ends all at once: the first process waits for one that is no more."""
    for process in processes:
        process.kill()
    log_to_files(logging.ERROR, _said[0])
    print(f"error: {_said[0]}", file=sys.stderr, flush=True)
    os._exit(1)
