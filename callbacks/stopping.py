"""Stopping on request: the iteration is finished and saved, and the run says how to go on."""

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from rich import get_console

from callbacks.over_ranks import over_ranks
from ngrpo.checkpoints import remains
from ngrpo.data.types import PromptBatch
from ngrpo.errors import StopNow, Stopped

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TIME_IS_UP = 1
"""Stands for the time limit among the numbers of signals, which begin at 2 here."""


class GracefulStop(Callback):
    """Ends the run after the iteration in which SIGTERM or Ctrl-C came, or the time was up.

    The first signal only leaves a mark, which the ranks agree on after each iteration; Lightning's own handler would
    broadcast from within, where another collective may be under way. A second signal ends the process at once. Neither
    a last evaluation nor an export is made. Place it before the checkpoint, which saves the iteration.

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
        self._message: str | None = None
        self._status = 0
        self._trainer: Trainer | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replaces the handlers, Lightning's too."""
        self._trainer = trainer
        self._handlers = {number: signal.signal(number, self._mark) for number in _SIGNALS}

    def _mark(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._wanted:
            self._end_now(name, number)
        self._wanted = number
        if self._trainer is not None and self._trainer.is_global_zero:
            get_console().print(f"{name}: the iteration is finished and saved; once more stops at once")

    def _end_now(self, name: str, number: int) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        launcher = getattr(self._trainer.strategy, "launcher", None) if self._trainer is not None else None
        if launcher is not None:  # the ranks that this one started would wait for it
            launcher.kill(signal.SIGKILL)
        raise StopNow(f"{name} twice: stopped at once; {remains(self.run_dir)}", 128 + number)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Lets the ranks agree whether this was the last iteration (a collective)."""
        if not self._wanted and self.max_time_s is not None and time.monotonic() - self._start >= self.max_time_s:
            self._wanted = _TIME_IS_UP
        agreed = int(over_ranks(trainer, torch.tensor(self._wanted), "max"))
        done = batch.iteration + 1
        if agreed and done < self.iterations:
            trainer.should_stop = True
            timed = agreed == _TIME_IS_UP
            cause = "trainer.max_time" if timed else signal.Signals(agreed).name
            self._status = 0 if timed else 128 + agreed
            self._message = f"stopped by {cause} after iteration {done} of {self.iterations}"

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves the training loop, after the checkpoint."""
        if self._message is not None:
            raise Stopped(f"{self._message}; {remains(self.run_dir)}", self._status)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Puts the handlers back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
