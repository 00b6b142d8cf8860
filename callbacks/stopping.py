"""The stop on request: the iteration is finished and saved, and the run says how to resume."""

import signal
import time
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from rich import get_console

from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.errors import StopNow, Stopped
from ngrpo.training.metric_logging import over_ranks
from ngrpo.types.problems import PromptBatch

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_PATIENT = (signal.SIGHUP, signal.SIGUSR1)
"""Those that no person sends: however often they come, the iteration is finished."""

_TIME_IS_UP = 1
_SIGNAL = 1
"""Stands before a signal's number in what the ranks agree on: one that any of them got counts more than the time."""


class GracefulStop(Callback):
    """Ends the run after the iteration in which SIGTERM, SIGUSR1, SIGHUP or Ctrl-C came, or the time was up.

    The first signal only leaves a mark, which the ranks agree on after each iteration; Lightning's own handler would
    broadcast from within, where another collective may be under way. A second SIGTERM or Ctrl-C ends the process at
    once; SIGHUP is no request of anybody, and a terminal that closes may send it twice. Where it is ignored, as nohup
    has it, it stays so. SIGUSR1 is what SLURM is often told to send before a job's time limit: the status tells the job
    file to put the job back into the queue, and counts more than a time that is up in the same iteration. In another
    thread than the main one no handler can be set, and the time alone counts. Neither a last evaluation nor an export
    is made; the checkpoint, which Lightning calls last, saves the iteration.

    Args:
        run_dir: the run's folder.
        iterations: of the whole run.
        max_time_s: seconds after which this process stops; None for no limit.
    """

    def __init__(self, run_dir: Path, iterations: int, max_time_s: int | None = None) -> None:
        self.run_dir = run_dir
        self.iterations = iterations
        self.max_time_s = max_time_s
        self._start = time.monotonic()
        self._wanted = 0
        self._requests = 0
        self._message: str | None = None
        self._status = 0
        self._trainer: Trainer | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replaces the handlers, Lightning's too."""
        self._trainer = trainer
        if current_thread() is not main_thread():
            return
        heeded = [number for number in _SIGNALS if number != signal.SIGHUP or not _ignored(number)]
        self._handlers = {number: signal.signal(number, self._mark) for number in heeded}

    def _mark(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        self._requests += number not in _PATIENT
        if self._requests > 1:
            self._end_now(name, number)
        self._wanted = _SIGNAL + number
        if self._trainer is not None and self._trainer.is_global_zero:
            further = "" if number in _PATIENT else "; once more stops at once"
            get_console().print(f"{name}: the iteration is finished and saved{further}")

    def _end_now(self, name: str, number: int) -> None:
        for each in _SIGNALS:
            if not _ignored(each):
                signal.signal(each, signal.SIG_DFL)
        launcher = getattr(self._trainer.strategy, "launcher", None) if self._trainer is not None else None
        if launcher is not None:  # the ranks that this one started would wait for it
            launcher.kill(signal.SIGKILL)
        raise StopNow(f"{name} twice: stopped at once; {how_to_resume(self.run_dir)}", 128 + number)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Lets the ranks agree whether this was the last iteration (a collective)."""
        if not self._wanted and self.max_time_s is not None and time.monotonic() - self._start >= self.max_time_s:
            self._wanted = _TIME_IS_UP
        agreed = int(over_ranks(trainer, torch.tensor(self._wanted), "max"))
        done = batch.iteration + 1
        if agreed and not trainer.should_stop:  # else this was the last one anyway
            trainer.should_stop = True
            number = agreed - _SIGNAL
            cause = signal.Signals(number).name if number else "trainer.max_time"
            self._status = 128 + number if number else 0
            self._message = f"stopped by {cause} after iteration {done} of {self.iterations}"

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves the training loop, after the checkpoint."""
        if self._message is not None:
            raise Stopped(f"{self._message}; {how_to_resume(self.run_dir)}", self._status)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Puts the handlers back, unless Lightning has already put back those from before its own."""
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._mark:
                signal.signal(number, handler)
        self._handlers = {}


def _ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
