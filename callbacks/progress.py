"""The progress of the run, on the terminal and in the log."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from lightning import Callback, LightningModule, Trainer
from rich import get_console
from rich.console import Group
from rich.live import Live
from torch import Tensor
from torch.optim import Optimizer

from ngrpo.callbacks.evaluation import evaluation_results
from ngrpo.callbacks.rollout import rollout_callback
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.evaluation.table_rows import table_rows
from ngrpo.report.curves import pass_curve
from ngrpo.report.run_progress import RunProgress
from ngrpo.report.status_line import StatusLine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.run_length import RunLength
from ngrpo.types.problems import PromptBatch
from ngrpo.utils.numbers import fixed, short, significant
from ngrpo.utils.standard_streams import log_to_files

log = logging.getLogger(__name__)


class ProgressReport(Callback):
    """On a terminal draws a bar, and below it what is being done; elsewhere logs a line an iteration.

    A line is logged at each evaluation, on a terminal too, with the differences to the one before training. Where
    there is no terminal, nothing is observed. Only rank 0 says anything. Place it after the evaluation callback.

    Args:
        run_length: when it is over.
        worker: is observed.
    """

    def __init__(self, run_length: RunLength, worker: RolloutWorker) -> None:
        self.worker = worker
        self._progress = RunProgress(run_length)
        self._line = StatusLine()
        self._live: Live | None = None
        self._steps = 0
        self._evaluations = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Opens the display on rank 0 of a terminal, before the first evaluation."""
        if not trainer.is_global_zero or not get_console().is_interactive or self._live is not None:
            return
        self._live = Live(Group(self._progress, self._line), console=get_console())
        self._live.start()
        self.worker.observer = self._line

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Counts from the iterations of the checkpoint, those before which nothing new is to be told."""
        rollouts = rollout_callback(trainer)
        resumed = rollouts.iterations_done > 0
        self._evaluations = len(evaluation_results(trainer)) if resumed else 0
        self._progress.begin(rollouts.iterations_done, rollouts.tokens_generated)
        self._tell_evaluations(trainer)

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
        metrics = shown_metrics(trainer.callback_metrics, batch.experience.group_size)
        self._progress.advance(batch.iteration + 1, rollout_callback(trainer).tokens_generated, metrics)
        line = self._progress.as_text()
        if self._live is None:
            log.info(line)
        else:
            log_to_files(logging.INFO, line)  # the terminal has the bar
        self._tell_evaluations(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tells the closing evaluation, and closes the display."""
        self._tell_evaluations(trainer)
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Closes the display."""
        self._close()

    def _tell_evaluations(self, trainer: Trainer) -> None:
        results = evaluation_results(trainer)
        for result in results[self._evaluations :] if trainer.is_global_zero else []:
            for line in evaluation_lines(result, results[0]):
                log.info(line)
        self._evaluations = len(results)

    def _close(self) -> None:
        if self._live is not None:
            self._line.text = ""
            self._live.stop()
            self._live = self.worker.observer = None


def shown_metrics(values: Mapping[str, Tensor], group_size: int) -> list[str]:
    """Returns what is told of an iteration, the most telling first."""
    shown: dict[str, Callable[[float], str]] = {
        "train/reward": lambda value: f"reward {fixed(value)}",
        f"train/pass@{group_size}": lambda value: f"pass@{group_size} {fixed(value)}",
        "policy/loss": lambda value: f"loss {significant(value, 3)}",
        "policy/entropy": lambda value: f"entropy {significant(value, 3)}",
        "rollout/tokens_per_s": lambda value: f"{short(value)} tokens/s",
    }
    return [say(float(values[tag])) for tag, say in shown.items() if tag in values]


def evaluation_lines(result: EvaluationResult, first: EvaluationResult) -> list[str]:
    """Returns a line a benchmark: Mean@1 and the Pass@k of the largest k, each with its difference to the first."""
    lines = []
    for prefix in result.rates:
        k = max(pass_curve(result.metrics, prefix))
        named = f", {prefix.removesuffix('/')}" if prefix else ""
        told = [_compared(name, prefix, result, first) for name in table_rows(["mean@1", f"pass@{k}"])]
        lines.append(f"evaluation {result.iteration}{named}: {'  '.join(told)}")
    return lines


def _compared(name: str, prefix: str, result: EvaluationResult, first: EvaluationResult) -> str:
    value, before = result.metrics[prefix + name], first.metrics.get(prefix + name)
    told = f"{name} {fixed(value)}"
    return told if result is first or before is None else f"{told} ({fixed(value - before, signed=True)})"
