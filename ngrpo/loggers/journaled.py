"""The base of the loggers of services: one row an iteration, and a resumed run that continues."""

import logging
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from ngrpo.loggers.journal import Journal, Row
from ngrpo.loggers.media import Medium
from ngrpo.utils.optional_packages import require

log = logging.getLogger(__name__)

FOLDER = "loggers"
"""Of the journals, in the run's folder."""


class JournaledLogger(Logger):
    """A logger of a service, which is opened when something is first logged, on rank 0.

    Metrics reach it an iteration a row: Lightning calls `save` when it has logged an iteration's, and an evaluation of
    the iteration after has been logged before that. A resumed run continues under the same id; rows before the
    checkpoint that the service lacks are given to it again, those that it has are not.

    Args:
        service: name of the logger, which is that of the package and of the extra.
        save_dir: the run's folder.
        run_name: what the run is called in the service.
        iterations_done: of the checkpoint; 0 without one.
        resumed_from: folder of the run that is resumed; None for this one.

    Raises:
        SettingError: the package is not installed.
    """

    def __init__(
        self, service: str, save_dir: str, run_name: str, iterations_done: int = 0, resumed_from: Path | None = None
    ) -> None:
        require(service, f"logger={service}")
        super().__init__()
        self.service = service
        self.run_name = run_name
        self.iterations_done = iterations_done
        self._save_dir = Path(save_dir)
        self._source = resumed_from or self._save_dir
        self._journal: Journal | None = None
        self._experiment: Any = None
        self._held = -1
        self._held_tags: set[str] = set()
        self._pending: dict[int, Row] = {}
        self._last = -1

    @abstractmethod
    def open(self, journal: Journal) -> tuple[Any, int]:
        """Opens the run in the service; called once.

        Args:
            journal: with the run's id, and what earlier processes have logged.

        Returns:
            What the service calls a run, and the last step that it holds anything of; -1 for none.

        Raises:
            SettingError: it cannot be reached, or refuses.
        """

    @abstractmethod
    def send(self, row: Row) -> None:
        """Gives a row to the service; rows come in order of their steps, unless something is logged late."""

    @abstractmethod
    def configure(self, settings: Mapping[str, Any]) -> None:
        """Gives the run's settings to the service, nested dictionaries."""

    @abstractmethod
    def close(self, succeeded: bool) -> None:
        """Ends the run in the service; everything has been sent."""

    @property
    def name(self) -> str:
        """The run's name in the service; that of the run that is resumed, once it is opened."""
        return self.run_name if self._journal is None else self._journal.name

    @property
    def version(self) -> str | None:
        """The run's id in the service; None before it is opened."""
        return None if self._journal is None else self._journal.run

    @property
    def save_dir(self) -> str:
        """The run's folder."""
        return str(self._save_dir)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """What the service calls a run, opened."""
        self._opened()
        return self._experiment

    def _opened(self) -> Journal:
        if self._journal is None:
            name = f"{self.service}.jsonl"
            file, source = self._save_dir / FOLDER / name, self._source / FOLDER / name
            self._journal = Journal(file, source, self.iterations_done, self.run_name)
            self._experiment, self._held = self.open(self._journal)
            self._held_tags = self._journal.given(self._held)
            if self._held > self.iterations_done:
                log.info(
                    "logger=%s holds iterations up to %d of this run already and takes nothing back: those after %d are"
                    " not logged anew", self.service, self._held, self.iterations_done,
                )  # fmt: skip
            for row in self._journal.kept():
                self._send(row)
        return self._journal

    def _send(self, row: Row) -> None:
        """Sends what the service lacks; of the last step that it holds, as of a closing evaluation, it has a part."""
        row = row.without(self._held_tags) if row.step == self._held else row
        if row.step >= self._held and (row.metrics or row.media):
            self.send(row)

    def _log(self, row: Row) -> None:
        self._opened().append(row)
        self._pending.setdefault(row.step, Row(row.step)).add(row)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keeps numbers for the row of a step; without a step, of the last."""
        self._last = self._last if step is None else step
        numbers = {tag: float(value) for tag, value in metrics.items() if tag != "epoch"}
        self._log(Row(max(self._last, 0), numbers))

    @rank_zero_only
    def log_media(self, media: Mapping[str, Medium], step: int) -> None:
        """Keeps media for the row of a step."""
        self._log(Row(step, media=dict(media)))

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Gives settings to the service."""
        self._opened()
        self.configure(vars(params) if isinstance(params, Namespace) else params)

    @rank_zero_only
    def save(self) -> None:
        """Sends the rows up to that of the last metrics."""
        self._flush(self._last)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Sends what is left, and ends the run."""
        if self._journal is not None:
            self._flush(max(self._pending, default=0))
            self.close(status == "success")

    def _flush(self, last: int) -> None:
        for step in sorted(step for step in self._pending if step <= last):
            self._send(self._pending.pop(step))
