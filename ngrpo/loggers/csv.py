"""A table of metrics, ``metrics.csv``."""

from pathlib import Path

from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning.pytorch.loggers.logger import rank_zero_experiment

from ngrpo.loggers.history import rows_before, table
from ngrpo.loggers.resumable import Resumable
from ngrpo.utils.atomic_write import write_text


class Csv(Resumable, CSVLogger):
    """Writes ``metrics.csv``, continuing after the rows of the iterations before the checkpoint."""

    _experiment: ExperimentWriter | None

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer of rows."""
        if self._experiment is None:
            self._experiment = _Continued(self.log_dir, self.iterations_done)
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
