"""The progress of the run, on the terminal and in the log."""

import logging
from typing import Any

from lightning import Callback, LightningModule, Trainer
from rich import get_console
from rich.console import Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch.optim import Optimizer

from ngrpo.report.status_line import StatusLine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import PromptBatch

log = logging.getLogger(__name__)


class ProgressReport(Callback):
    """Logs a line an iteration; on a terminal draws a bar with the same figures, and below it what is being done.

    Where there is no terminal, nothing is observed.

    Args:
        iterations: iterations in all.
        worker: is observed.
    """

    def __init__(self, iterations: int, worker: RolloutWorker) -> None:
        self.iterations = iterations
        self.worker = worker
        self._bar = _bar()
        self._task = self._bar.add_task("", total=iterations)
        self._line = StatusLine()
        self._live: Live | None = None
        self._steps = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Opens the display on rank 0 of a terminal, before the first evaluation."""
        if not trainer.is_global_zero or not get_console().is_terminal or self._live is not None:
            return
        self._live = Live(Group(self._bar, self._line), console=get_console())
        self._live.start()
        self.worker.observer = self._line

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Says that the update begins: the rollouts are made in this hook of a callback before."""
        self._steps = 0
        self._line.text = "updating"

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Counts the optimiser steps of the iteration."""
        self._steps += 1
        self._line.text = f"updating, optimiser step {self._steps}"

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Shows reward, Pass@k of the groups, entropy and rollout speed."""
        if not trainer.is_global_zero:
            return
        done = batch.iteration + 1
        line = _line(trainer, batch.experience.group_size)
        log.info("iteration %d/%d  %s", done, self.iterations, line)
        self._bar.update(self._task, completed=done, description=line)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the display."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Closes the display."""
        self._close()

    def _close(self) -> None:
        if self._live is not None:
            self._line.text = ""
            self._live.stop()
            self._live = self.worker.observer = None


def _bar() -> Progress:
    columns = (TextColumn("iteration"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=get_console())


def _line(trainer: Trainer, group_size: int) -> str:
    shown = {
        "reward": "train/reward",
        f"pass@{group_size}": f"train/pass@{group_size}",
        "loss": "policy/loss",
        "entropy": "policy/entropy",
        "tokens/s": "rollout/tokens_per_s",
    }
    values = trainer.callback_metrics
    return "  ".join(f"{label} {float(values[tag]):.4g}" for label, tag in shown.items() if tag in values)
