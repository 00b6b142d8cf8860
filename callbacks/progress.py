"""Where the run stands, on the terminal and in the log."""

import logging
from typing import Any

from lightning import Callback, LightningModule, Trainer
from rich import get_console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ngrpo.data.types import PromptBatch

log = logging.getLogger(__name__)


class ProgressReport(Callback):
    """Logs a line an iteration, and on a terminal draws a bar with the same figures.

    Args:
        iterations: iterations in all.
    """

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self._bar: Progress | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens the bar on rank 0 of a terminal."""
        if not trainer.is_global_zero or not get_console().is_terminal:
            return
        columns = (
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
        )
        self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=get_console())
        self._bar.add_task("", total=self.iterations)
        self._bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Shows reward, Pass@k of the groups, entropy and rollout speed."""
        if not trainer.is_global_zero:
            return
        done = batch.iteration + 1
        line = _line(trainer, batch.experience.group_size)
        log.info("iteration %d/%d  %s", done, self.iterations, line)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, description=line)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the bar."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Closes the bar."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


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
