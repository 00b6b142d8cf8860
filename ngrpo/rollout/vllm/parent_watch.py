"""Ends vLLM's engine process when its training process is gone.

A training process that is killed (by the kernel for its memory, by a scheduler) cannot end its engine. The engine
process of vLLM 0.32 then waits for requests for ever and keeps its GPU, where the resumed run finds no memory; and its
workers, which watch over it, stay as long.
"""

import multiprocessing
import os
import signal
from functools import cache
from multiprocessing.process import BaseProcess
from threading import Thread

_TRAINER = "NGRPO_TRAINER_PID"


def name_trainer() -> None:
    """Tells the processes that this one starts from now on that it is the training process."""
    os.environ[_TRAINER] = str(os.getpid())


@cache
def end_with_trainer() -> None:
    """Watches, once, over the training process from a process that it started itself; does nothing in any other."""
    parent = multiprocessing.parent_process()
    if parent is not None and os.environ.get(_TRAINER) == str(parent.pid):
        Thread(target=_end_after, args=(parent,), name="ngrpo-parent-watch", daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)  # in order, it would wait for its own threads, which wait for requests
