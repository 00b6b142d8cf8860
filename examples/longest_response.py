"""A callback of your own: the longest response of every few iterations, as text in the run's folder."""

from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer


class LongestResponse(Callback):
    """Writes ``longest.txt``; the run's folder and the tokenizer are passed by name."""

    def __init__(self, run_dir: Path, tokenizer: Any, every: int = 10) -> None:
        self.run_dir = run_dir
        self.tokenizer = tokenizer
        self.every = every

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """``batch.experience`` has the rollouts of this process, with their rewards."""
        if trainer.is_global_zero and batch.iteration % self.every == 0:
            longest = max(batch.experience.rollouts, key=lambda rollout: rollout.length)
            with (self.run_dir / "longest.txt").open("a", encoding="utf-8") as file:
                file.write(f"{batch.iteration}: {self.tokenizer.decode(longest.response_ids)}\n")
