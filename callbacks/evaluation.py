"""Evaluation on held-out problems before, during and after training."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer

from ngrpo.distributed.collectives import ranks
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.evaluation.identity import comparable, evaluation_digest
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Prompt, PromptBatch

log = logging.getLogger(__name__)


class Evaluation(Callback):
    """Runs an `Evaluator` on benchmarks or the data module's evaluation prompts; keeps all results over resumes.

    Place it after the rollout callback, so that the engine already serves the new weights. A run that resumes with
    another evaluation begins with it, since its figures cannot be compared with those before.

    Args:
        worker: makes the rollouts.
        datamodule: gives ``eval_prompts()``; with none of them and no benchmark nothing is evaluated.
        evaluator: samples, temperature, strategy.
        every: iterations between evaluations; 0 evaluates before and after only.
        benchmarks: prompts by name, in place of the data module's; the metrics are then ``<name>/mean@1`` and so on.
    """

    def __init__(
        self,
        worker: RolloutWorker,
        datamodule: LightningDataModule,
        evaluator: Evaluator,
        every: int = 0,
        benchmarks: Mapping[str, list[Prompt]] | None = None,
    ) -> None:
        if every < 0:
            raise SettingError(f"callbacks.evaluation.every={every} is negative; 0 evaluates before and after only.")
        self.worker = worker
        own = {"": datamodule.eval_prompts()}
        self.prompts = {f"{name}/": prompts for name, prompts in benchmarks.items()} if benchmarks else own
        self.evaluator = evaluator
        self.every = every
        self.made_of = evaluation_digest(evaluator, self.prompts)
        self.results: list[EvaluationResult] = []
        self._done = 0
        self._lengths: dict[str, list[float]] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluates the untrained policy, or that of a checkpoint; logs what a checkpoint's had reached already."""
        if not self.results:
            self._evaluate(trainer)
        elif self.results[-1].made_of not in (self.made_of, ""):
            log.log(
                logging.WARNING if trainer.is_global_zero else logging.DEBUG,
                "callbacks.evaluation or data.eval_problems is another than before the resume: figures of evaluations "
                "are compared with those of iteration %d, evaluated now",
                self._done,
            )
            self._evaluate(trainer)
        elif self.results[-1].iteration == self._done:
            log_evaluation(trainer, self._done, self.results[-1].metrics)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Evaluates every ``every`` iterations."""
        self._done = batch.iteration + 1
        if self.every and self._done % self.every == 0:
            self._evaluate(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluates the trained policy."""
        if self.results and self.results[-1].iteration < self._done:
            self._evaluate(trainer)

    def _evaluate(self, trainer: Trainer) -> None:
        metrics: dict[str, float] = {}
        rates: dict[str, list[float]] = {}
        for benchmark, prompts in self.prompts.items():
            if prompts:
                before = self._lengths.get(benchmark, [])
                lengths = before if len(before) == len(prompts) else None  # others after a resume with other data
                found = self.evaluator.run(self.worker, prompts, ranks(), lengths)
                self._lengths[benchmark] = found.lengths
                metrics |= {f"{benchmark}{name}": value for name, value in found.metrics.items()}
                rates[benchmark] = found.rates
        if not metrics:
            return
        self.results.append(EvaluationResult(self._done, metrics, rates, self.made_of))
        log_evaluation(trainer, self._done, metrics)
        # For callbacks that watch a metric.
        trainer.callback_metrics.update({tag: torch.tensor(value) for tag, value in tagged(metrics).items()})

    def state_dict(self) -> dict[str, Any]:
        """Holds the results, and how long the last responses were."""
        results = [asdict(result) for result in self.results]
        return {"results": results, "done": self._done, "lengths": self._lengths}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the results."""
        self.results = [EvaluationResult(**result) for result in state_dict["results"]]
        self._done = state_dict["done"]
        self._lengths = state_dict.get("lengths", {})  # not in those of earlier versions


def evaluation_results(trainer: Trainer) -> list[EvaluationResult]:
    """Returns what the evaluation callback of a run has found so far, as far as it can be compared with the last."""
    return comparable([result for c in trainer.callbacks if isinstance(c, Evaluation) for result in c.results])


def made_of(trainer: Trainer) -> str:
    """Returns what the evaluations of a run are made of, see `EvaluationResult`; "" without any."""
    return next((c.made_of for c in trainer.callbacks if isinstance(c, Evaluation)), "")


def tagged(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns an evaluation's metrics by the tags under which they are logged."""
    return {f"eval/{name}": value for name, value in metrics.items()}


def log_evaluation(trainer: Trainer, iteration: int, metrics: Mapping[str, float]) -> None:
    """Logs what the policy reached after so many iterations."""
    for logger in trainer.loggers:
        logger.log_metrics(tagged(metrics), step=iteration)
