"""Saves the whole run every few iterations, complete or not at all."""

from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer

from ngrpo.checkpoints import FOLDER, STATE, complete, discard, publish, remove
from ngrpo.data.types import PromptBatch
from ngrpo.errors import SettingError


class IterationCheckpoint(Callback):
    """Writes ``checkpoints/iteration-N`` after every ``every``-th iteration.

    Lightning's ModelCheckpoint counts optimiser steps, overwrites in place, and leaves partial folders under final
    names when it is killed; this one counts iterations and renames a finished folder into place. Place it last.

    Args:
        run_dir: the run's folder; rank 0's is used on all ranks.
        every: iterations between checkpoints; 0 saves none.
        keep: how many to keep.
    """

    def __init__(self, run_dir: Path, every: int = 10, keep: int = 2) -> None:
        if every < 0 or keep < 1:
            raise SettingError(
                f"callbacks.checkpoint.every={every} must be 0 or more (0 saves none) and keep={keep} 1 or more."
            )
        self.run_dir = run_dir
        self.every = every
        self.keep = keep

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Agrees on one folder."""
        self.run_dir = Path(trainer.strategy.broadcast(str(self.run_dir)))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Saves when it is time."""
        done = batch.iteration + 1
        if self.every and (done % self.every == 0 or trainer.should_stop):
            self._save(trainer, done)

    def _save(self, trainer: Trainer, done: int) -> None:
        final = self.run_dir / FOLDER / f"iteration-{done}"
        temporary = final.with_name(final.name + ".tmp")
        if trainer.is_global_zero:
            remove(temporary)
            temporary.mkdir(parents=True)
        trainer.strategy.barrier()
        trainer.save_checkpoint(temporary / STATE, weights_only=False)
        trainer.strategy.barrier()
        if trainer.is_global_zero:
            publish(temporary, final)
            for old in complete(self.run_dir)[: -self.keep]:
                discard(old)
        trainer.strategy.barrier()
