"""Event files for TensorBoard."""

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.tensorboard.summary import hparams

from ngrpo.loggers.history import rename_future_events
from ngrpo.loggers.resumable import Resumable
from ngrpo.loggers.scalar_layout import LAYOUT


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
        """The writer of events; the charts of custom scalars are written when it is opened."""
        if self._experiment is None:
            rename_future_events(Path(self.log_dir), int(time.time()))
            writer = super().experiment
            writer.add_custom_scalars(LAYOUT)
        return super().experiment

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Writes scalars; not Lightning's epoch, which is one all the time and would come first everywhere."""
        super().log_metrics({tag: value for tag, value in metrics.items() if tag != "epoch"}, step)

    @rank_zero_only
    def log_hyperparams(
        self,
        params: dict[str, Any] | Namespace,
        metrics: dict[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Writes settings by their whole names.

        TensorBoard itself finds the metrics beside them, each with the last value that was written, and the settings in
        which runs differ: Lightning would list a metric of its own, and the settings of the first run only.

        Args:
            params: settings, nested or not.
            metrics: unused.
            step: unused.
        """
        settings = flat_settings(vars(params) if isinstance(params, Namespace) else params)
        self.hparams.update(settings)
        _, started, _ = hparams(settings, {})  # type: ignore[no-untyped-call]
        self.experiment._get_file_writer().add_summary(started)


def flat_settings(node: Mapping[str, Any], path: str = "") -> dict[str, bool | int | float | str]:
    """Returns nested settings by their whole names: numbers as they are, everything else as text."""
    found: dict[str, bool | int | float | str] = {}
    for key, value in node.items():
        name = f"{path}.{key}".lstrip(".")
        if isinstance(value, Mapping) and value:
            found |= flat_settings(value, name)
        else:
            found[name] = value if isinstance(value, bool | int | float) else str(value)
    return found
