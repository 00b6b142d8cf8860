"""The record of the best checkpoint by a metric."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from lightning import Trainer

from ngrpo.callbacks.evaluation import made_of
from ngrpo.checkpoint.folders import FOLDER, complete_checkpoints
from ngrpo.checkpoint.manifest import sequence_of
from ngrpo.errors import SettingError
from ngrpo.utils.atomic_write import remove, write_text

POINTER = "best.json"
_EVALUATED = "eval/"


@dataclass(frozen=True)
class Best:
    """What ``checkpoints/best.json`` says.

    Attributes:
        checkpoint: name of the folder beside it.
        monitor: the metric.
        mode: max | min.
        value: of the metric there.
        sequence: of the checkpoint (`ngrpo.checkpoint.manifest.Manifest`); another of the same iteration may have taken
            its place.
        made_of: of an evaluation's metric what that was made of, see `EvaluationResult`.
    """

    checkpoint: str
    monitor: str
    mode: str
    value: float
    sequence: int = 0
    made_of: str = ""


class Monitor:
    """Watches a metric; the record is on disk alone, so that it holds over resumes.

    Args:
        monitor: tag of a logged metric, such as ``eval/mean@1`` or ``train/reward``; None watches nothing.
        mode: max | min, what is better.
    """

    def __init__(self, monitor: str | None, mode: str) -> None:
        if mode not in ("max", "min"):
            raise SettingError(f"callbacks.checkpoint.mode={mode} is not known; choose max or min.")
        self.monitor = monitor
        self.mode = mode
        self._made_of = ""

    def check(self, trainer: Trainer) -> None:
        """Refuses a metric that nobody logs; called when an iteration has been logged.

        Raises:
            SettingError: it is not there, and is not one of evaluations that are yet to come.
        """
        known = trainer.callback_metrics
        if self.monitor is None or self.monitor in known:
            return
        if not self.monitor.startswith(_EVALUATED) or any(tag.startswith(_EVALUATED) for tag in known):
            raise SettingError(
                f"callbacks.checkpoint.monitor={self.monitor} is not logged; choose one of {', '.join(sorted(known))}."
            )

    def forget(self, trainer: Trainer) -> None:
        """Drops the value of an earlier iteration: evaluations are rare, and it is not that of the new weights."""
        if self.monitor is not None and self.monitor in trainer.callback_metrics:
            trainer.callback_metrics[self.monitor] = torch.tensor(math.nan)

    def better(self, trainer: Trainer, run: Path) -> float | None:
        """Returns the metric if this iteration has one that beats the record, the same on all ranks."""
        self._made_of = made_of(trainer) if str(self.monitor).startswith(_EVALUATED) else ""
        value = float(trainer.callback_metrics.get(self.monitor, math.nan)) if self.monitor else math.nan
        before = self.record(run)
        sign = 1 if self.mode == "max" else -1
        beats = not math.isnan(value) and (before is None or sign * value > sign * before.value)
        found: float | None = trainer.strategy.broadcast(value if beats else None)
        return found

    def record(self, run: Path) -> Best | None:
        """Returns the record by this metric, of this evaluation, and mode, if there is one."""
        best = _read(run)
        if best is None or (best.monitor, best.mode) != (self.monitor, self.mode):
            return None
        return best if best.made_of in (self._made_of, "") else None

    def mark(self, folder: Path, value: float) -> None:
        """Makes a checkpoint the best one."""
        best = Best(folder.name, str(self.monitor), self.mode, value, sequence_of(folder) or 0, self._made_of)
        write_text(folder.parent / POINTER, json.dumps(asdict(best)) + "\n")

    def drop_replaced(self, run: Path) -> None:
        """Takes the pointer away if the checkpoint that it names is gone, or another one of that iteration."""
        if _read(run) is None:
            remove(run / FOLDER / POINTER)

    def outdated(self, run: Path, keep: int) -> list[Path]:
        """Returns the checkpoints to discard: all but the last ``keep`` and what is named the best, by whatever."""
        best = _read(run)
        return [old for old in complete_checkpoints(run)[:-keep] if best is None or old.name != best.checkpoint]


def _read(run: Path) -> Best | None:
    """Returns what the pointer says, unless its checkpoint is no longer there."""
    path = run / FOLDER / POINTER
    if not path.exists():
        return None
    best = Best(**json.loads(path.read_text()))
    return best if sequence_of(path.parent / best.checkpoint) == best.sequence else None
