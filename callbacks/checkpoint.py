"""Checkpoints of the whole run every few iterations, complete or not at all."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch.distributed.checkpoint.api import CheckpointException

from ngrpo.callbacks.best import Monitor
from ngrpo.checkpoint.folders import (
    FOLDER,
    STATE,
    complete_checkpoints,
    discard,
    how_to_resume,
    publish,
    temporary_folder,
)
from ngrpo.checkpoint.saved_runs import record_save
from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.errors import RunError, SettingError
from ngrpo.modeling.sharding import local
from ngrpo.types.problems import PromptBatch
from ngrpo.utils.atomic_write import remove

log = logging.getLogger(__name__)


class IterationCheckpoint(Checkpoint):
    """Writes ``checkpoints/iteration-N`` after every ``every``-th iteration.

    Lightning's ModelCheckpoint counts optimiser steps, overwrites in place, and leaves partial folders under final
    names when it is killed; this one counts iterations and renames a finished folder into place. Lightning calls
    checkpoints after all other callbacks, wherever they are listed, so that what is saved of those is of the present
    iteration.

    Args:
        run_dir: the run's folder; rank 0's is used on all ranks.
        identity: what the checkpoints belong to, see `ngrpo.checkpoint.compatibility.identity`.
        every: iterations between checkpoints; 0 saves none.
        keep: how many to keep.
        monitor: a logged metric; an iteration that beats its record is saved too and kept beside the last ones, and
            ``checkpoints/best.json`` names it. None watches none.
        mode: max | min, what is better.
        outputs: the folder of all runs, which keeps a list of those that saved.
    """

    def __init__(
        self,
        run_dir: Path,
        identity: Mapping[str, str],
        every: int = 10,
        keep: int = 2,
        monitor: str | None = None,
        mode: str = "max",
        outputs: Path = Path("outputs"),
    ) -> None:
        if every < 0 or keep < 1:
            raise SettingError(
                f"callbacks.checkpoint.every={every} must be 0 or more (0 saves none) and keep={keep} 1 or more."
            )
        self.run_dir = run_dir
        self.identity = identity
        self.every = every
        self.keep = keep
        self.outputs = outputs
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
        """Saves when it is time, and what is worth it: weights that are not finite would replace good ones."""
        done = batch.iteration + 1
        if not self._checked:
            self.best.check(trainer)
            self._checked = True
        record = self.best.better(trainer, self.run_dir)
        if record is None and not (self.every and (done % self.every == 0 or trainer.should_stop)):
            return
        if all(gathered_everywhere(_finite(pl_module))):
            self._save(trainer, done, record)
        else:
            log.warning("no checkpoint of iteration %d: the weights are not finite", done)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the closing evaluation into account, which comes after the last checkpoint."""
        record = self.best.better(trainer, self.run_dir)
        last = complete_checkpoints(self.run_dir)[-1:]
        if record is not None and last and self.every and trainer.is_global_zero:
            self.best.mark(last[0], record)

    def _save(self, trainer: Trainer, done: int, record: float | None) -> None:
        """Writes, then publishes, then prunes; old checkpoints are touched only when the new one is complete."""
        final = self.run_dir / FOLDER / f"iteration-{done}"
        temporary = Path(f"{final}.tmp")
        first = trainer.is_global_zero
        self._agreed(final, lambda: temporary_folder(final) if first else None)
        self._agreed(final, lambda: _write(trainer, temporary / STATE))
        self._agreed(final, lambda: self._publish(temporary, final, record) if first else None)

    def _agreed(self, final: Path, step: Callable[[], object]) -> None:
        """Makes one step of saving; the next one begins when it is done on all ranks.

        Raises:
            RunError: it failed on any of them.
        """
        failure = None
        try:
            step()
        except (Exception, CheckpointException) as error:
            failure = _reason(error)
        failures = [reason for reason in gathered_everywhere(failure) if reason]
        if not failures:
            return
        raise RunError(
            f"{final} could not be written ({failures[0]}); free some space; {how_to_resume(self.run_dir)}.",
            everywhere=True,
        )

    def _publish(self, temporary: Path, final: Path, record: float | None) -> None:
        publish(temporary, final, self.identity)
        record_save(self.outputs, self.run_dir)
        self.best.drop_replaced(self.run_dir)
        if record is not None:
            self.best.mark(final, record)
        for old in self.best.outdated(self.run_dir, self.keep):
            discard(old)


def _reason(error: BaseException) -> str:
    """Returns why something failed, in one line; of a failure on several ranks the first one's reason."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return " ".join(str(error).split()) or repr(error)


def _write(trainer: Trainer, path: Path) -> None:
    try:
        trainer.save_checkpoint(path, weights_only=False)
    except BaseException:
        trainer.strategy.barrier()  # the one in which ranks that succeeded wait for this one
        if trainer.is_global_zero:
            remove(path.parent)  # a full disk should not stay full of it
        raise


def _finite(module: LightningModule) -> bool:
    """Says whether this rank's share of the weights is finite."""
    return all(bool(local(parameter.detach()).isfinite().all()) for parameter in module.parameters())
