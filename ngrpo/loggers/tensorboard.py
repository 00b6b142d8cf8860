"""Event files for TensorBoard."""

import time
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment

from ngrpo.loggers.history import rename_future_events
from ngrpo.loggers.resumable import Resumable


class TensorBoard(Resumable, TensorBoardLogger):
    """Writes events; a resumed run's first one tells readers to drop those from the checkpoint's step on.

    Evaluations of the checkpoint's iteration have that very step, and are logged once more
    (`ngrpo.callbacks.evaluation`).
    """

    @staticmethod
    def first_step(iterations_done: int) -> dict[str, Any]:
        """Returns the setting of the event writer."""
        return {"purge_step": iterations_done}

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The writer of events."""
        if self._experiment is None:
            rename_future_events(Path(self.log_dir), int(time.time()))
        return super().experiment
