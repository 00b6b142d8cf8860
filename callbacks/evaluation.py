"""Evaluation on held-out problems before, during and after training."""

from dataclasses import asdict, dataclass
from typing import Any

from lightning import Callback, LightningDataModule, LightningModule, Trainer

from ngrpo.data.types import PromptBatch
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.rollout.worker import RolloutWorker


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of the policy after ``iteration`` iterations."""

    iteration: int
    metrics: dict[str, float]


class Evaluation(Callback):
    """Runs an `Evaluator` on the data module's evaluation prompts; keeps all results over resumes.

    Place it after the rollout callback, so that the engine already serves the new weights.

    Args:
        worker: makes the rollouts.
        datamodule: gives ``eval_prompts()``; with none of them nothing is evaluated.
        evaluator: samples, temperature, strategy.
        every: iterations between evaluations; 0 evaluates before and after only.
    """

    def __init__(
        self, worker: RolloutWorker, datamodule: LightningDataModule, evaluator: Evaluator, every: int = 0
    ) -> None:
        if every < 0:
            raise SettingError(f"callbacks.evaluation.every={every} is negative; 0 evaluates before and after only.")
        self.worker = worker
        self.prompts = datamodule.eval_prompts()
        self.evaluator = evaluator
        self.every = every
        self.results: list[EvaluationResult] = []
        self._done = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluates the untrained policy, unless the run was resumed."""
        if not self.results:
            self._evaluate(trainer)

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
        if not self.prompts:
            return
        metrics = self.evaluator.run(self.worker, self.prompts, trainer.global_rank, trainer.world_size)
        self.results.append(EvaluationResult(self._done, metrics))
        for logger in trainer.loggers:
            logger.log_metrics({f"eval/{name}": value for name, value in metrics.items()}, step=self._done)

    def state_dict(self) -> dict[str, Any]:
        """Holds the results."""
        return {"results": [asdict(result) for result in self.results], "done": self._done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the results."""
        self.results = [EvaluationResult(**result) for result in state_dict["results"]]
        self._done = state_dict["done"]
