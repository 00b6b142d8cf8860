"""Saves the whole run every few iterations, complete or not at all."""

from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer

from callbacks.best import Monitor
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
        monitor: a logged metric; an iteration that beats its record is saved too and kept beside the last ones, and
            ``checkpoints/best.json`` names it. None watches none.
        mode: max | min, what is better.
    """

    def __init__(
        self, run_dir: Path, every: int = 10, keep: int = 2, monitor: str | None = None, mode: str = "max"
    ) -> None:
        if every < 0 or keep < 1:
            raise SettingError(
                f"callbacks.checkpoint.every={every} must be 0 or more (0 saves none) and keep={keep} 1 or more."
            )
        self.run_dir = run_dir
        self.every = every
        self.keep = keep
        self.best = Monitor(monitor, mode)
        self._checked = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Agrees on one folder."""
        self.run_dir = Path(trainer.strategy.broadcast(str(self.run_dir)))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Waits for this iteration's metric."""
        self.best.forget(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Saves when it is time."""
        done = batch.iteration + 1
        if not self._checked:
            self.best.check(trainer)
            self._checked = True
        record = self.best.better(trainer, self.run_dir)
        if record is not None or (self.every and (done % self.every == 0 or trainer.should_stop)):
            self._save(trainer, done, record)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the closing evaluation into account, which comes after the last checkpoint."""
        record = self.best.better(trainer, self.run_dir)
        last = complete(self.run_dir)[-1:]
        if record is not None and last and self.every and trainer.is_global_zero:
            self.best.mark(last[0], record)

    def _save(self, trainer: Trainer, done: int, record: float | None) -> None:
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
            if record is not None:
                self.best.mark(final, record)
            for old in self.best.outdated(self.run_dir, self.keep):
                discard(old)
        trainer.strategy.barrier()
