"""Lightning's loggers for runs that are resumed: what comes after the checkpoint is dropped, what came before stays.

A run that is begun anew in a folder starts with an empty history.
"""

import time
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning.pytorch.loggers.logger import rank_zero_experiment

from ngrpo.loggers.history import rename_future_events, rows_before, table
from ngrpo.utils.atomic_write import write_text


class TensorBoard(TensorBoardLogger):
    """Writes events; a resumed run's first one tells readers to drop those from the checkpoint's step on.

    Evaluations of the checkpoint's iteration have that very step, and are logged once more (`callbacks.evaluation`).

    Args:
        save_dir: the run's folder.
        name: of the folder in it.
        version: of a folder in that one; "" for none.
        iterations_done: of the checkpoint; 0 without one.
        settings: of Lightning's logger.
    """

    def __init__(self, save_dir: str, name: str, version: str, iterations_done: int = 0, **settings: Any) -> None:
        super().__init__(save_dir, name, version, purge_step=iterations_done, **settings)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The writer of events."""
        if self._experiment is None:
            rename_future_events(Path(self.log_dir), int(time.time()))
        return super().experiment


class Csv(CSVLogger):
    """Writes ``metrics.csv``, continuing after the rows of the iterations before the checkpoint.

    Args:
        save_dir: the run's folder.
        name: of the folder in it.
        version: of a folder in that one; "" for none.
        iterations_done: of the checkpoint; 0 without one.
        settings: of Lightning's logger.
    """

    def __init__(self, save_dir: str, name: str, version: str, iterations_done: int = 0, **settings: Any) -> None:
        super().__init__(save_dir, name, version, **settings)
        self._experiment: ExperimentWriter | None = None
        self._iterations_done = iterations_done

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer of rows."""
        if self._experiment is None:
            self._experiment = _Continued(self.log_dir, self._iterations_done)
        return self._experiment


class _Continued(ExperimentWriter):
    def __init__(self, log_dir: str, iterations_done: int) -> None:
        super().__init__(log_dir)
        file = Path(self.metrics_file_path)
        kept = rows_before(file, iterations_done)
        self.metrics_keys = sorted({tag for row in kept for tag in row})
        if kept:
            write_text(file, table(self.metrics_keys, kept))
        else:
            file.unlink(missing_ok=True)

    def _check_log_dir_exists(self) -> None:
        """Lightning deletes the earlier rows here."""
