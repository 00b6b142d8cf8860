"""The record that the report page is made from, and the page."""

import math
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from ngrpo.callbacks.evaluation import evaluation_results, log_evaluation
from ngrpo.checkpoint.folders import iteration_of
from ngrpo.distributed.collectives import gathered
from ngrpo.errors import SettingError
from ngrpo.loggers.media import Page
from ngrpo.loggers.media_adapters import log_media
from ngrpo.report.page import write_page
from ngrpo.report.run_description import RunDescription
from ngrpo.report.run_records import IterationRecord
from ngrpo.report.run_store import RunStore
from ngrpo.report.stored_rollouts import Subset, problem_rates, stored_rollouts
from ngrpo.report.warning_collector import WarningCollector
from ngrpo.types.problems import PromptBatch


class RunRecord(Callback):
    """Keeps ``record/`` in the run's folder and writes ``report.html`` beside it.

    Metrics and problems are kept of every iteration, rollouts of rank 0 of every few. Place it after all callbacks
    that log or write the summary.

    Args:
        run_dir: the run's folder.
        tokenizer: a transformers tokenizer.
        every: iterations between stored rollouts.
        groups: prompts of which rollouts are stored.
        rollouts: responses a prompt.
        tokens: first tokens a response.
        keep: most iterations of which rollouts are kept, spread over the run.
        page_every: iterations between pages; 0 writes one at the start and at the end only.
        description: what the run is; None leaves it out of the report.
        warned: what is warned of during the run; None leaves it out.
    """

    def __init__(
        self,
        run_dir: Path,
        tokenizer: Any,
        every: int = 10,
        groups: int = 4,
        rollouts: int = 8,
        tokens: int = 1024,
        keep: int = 12,
        page_every: int = 5,
        description: RunDescription | None = None,
        warned: WarningCollector | None = None,
    ) -> None:
        for name, value, least in (
            ("every", every, 1),
            ("groups", groups, 1),
            ("rollouts", rollouts, 1),
            ("tokens", tokens, 1),
            ("keep", keep, 2),
            ("page_every", page_every, 0),
        ):
            if value < least:
                raise SettingError(
                    f"callbacks.run_record.{name}={value} must be {least} or more; set callbacks.run_record=null to "
                    "write no report."
                )
        self.run_dir = run_dir
        self.tokenizer = tokenizer
        self.every = every
        self.subset = Subset(groups, rollouts, tokens)
        self.keep = keep
        self.page_every = page_every
        self.description = description
        self.warned = warned
        self.store = RunStore(run_dir)
        self._evaluated: set[tuple[int, str]] = set()
        self._done = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes over the record of the run that is resumed, and writes the first page."""
        if not trainer.is_global_zero:
            return
        if trainer.ckpt_path is not None:
            self._resume(trainer, Path(trainer.ckpt_path).parent)
        self.store.begin()
        if self.description is not None:
            self.store.describe(self.description)
        if self.warned is not None:
            self.warned.listen(self.store.add_warning)
        self._add_evaluations(trainer)
        write_page(self.run_dir)

    def _resume(self, trainer: Trainer, checkpoint: Path) -> None:
        done = self._done = iteration_of(checkpoint)
        self.store.go_on_from(checkpoint.parents[1], done)
        self._evaluated = {(record.iteration, record.made_of) for record in self.store.all_evaluations()}
        # The closing evaluation of a run that is resumed is in no checkpoint, and its loggers have dropped it.
        for record in self.store.evaluations():
            if record.iteration == done and done not in {result.iteration for result in evaluation_results(trainer)}:
                log_evaluation(trainer, done, record.metrics)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Stores the iteration (a collective)."""
        everyone = gathered(problem_rates(batch.experience))
        shown = batch.iteration % self.every == 0 or trainer.should_stop
        entropies = self._entropies(batch, shown)
        if not trainer.is_global_zero:
            return
        done = self._done = batch.iteration + 1
        self.store.add_iteration(
            IterationRecord(
                batch.iteration, _of_iteration(trainer.callback_metrics), [p for own in everyone for p in own]
            )
        )
        self._add_evaluations(trainer)
        if shown:
            advantages = [float(a.sum(0).mean()) for a in batch.update.advantages]
            rollouts = stored_rollouts(self.tokenizer, batch.experience, advantages, entropies, self.subset)
            self.store.add_rollouts(batch.iteration, rollouts, self.keep)
        if self.page_every and done % self.page_every == 0:
            write_page(self.run_dir)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the page."""
        if trainer.is_global_zero:
            self._add_evaluations(trainer)
            log_media(trainer, {"report": Page(str(write_page(self.run_dir)))}, self._done)

    def _entropies(self, batch: PromptBatch, shown: bool) -> dict[int, list[float]]:
        """Returns the entropies of what rank 0 stores, by the rollout's key (a collective).

        Other ranks may have trained on it, and only rank 0's word counts on whether anything is stored.
        """
        own = [batch.experience.rollouts[i].key for i in self.subset.of(batch.experience)] if shown else []
        wanted = gathered(own)[0]
        if not wanted:
            return {}
        known = batch.update.entropies
        parts = gathered({key: known[key][: self.subset.tokens].tolist() for key in wanted if key in known})
        return {key: values for part in parts for key, values in part.items()}

    def _add_evaluations(self, trainer: Trainer) -> None:
        for result in evaluation_results(trainer):
            if (result.iteration, result.made_of) not in self._evaluated:
                self._evaluated.add((result.iteration, result.made_of))
                self.store.add_evaluation(result)


def _of_iteration(metrics: dict[str, torch.Tensor]) -> dict[str, float]:
    """Leaves out evaluations, which are recorded by themselves, and what JSON has no number for."""
    numbers = {name: float(value) for name, value in metrics.items() if not name.startswith("eval/")}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
