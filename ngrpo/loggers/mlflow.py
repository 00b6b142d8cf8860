"""Runs in MLflow."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any

from ngrpo.config.earlier_settings import flat
from ngrpo.errors import SettingError, first_line
from ngrpo.loggers.journal import Journal, Row
from ngrpo.loggers.journaled import JournaledLogger
from ngrpo.loggers.media import Image, Page, Table, Text
from ngrpo.utils.optional_packages import require

_MOST_AT_ONCE = 100
_LONGEST = 500
_LOCAL = "sqlite:///mlflow.db"
"""MLflow's own default: ``mlflow ui`` in the same folder shows it."""


class Mlflow(JournaledLogger):
    """Logs metrics to a run of MLflow, settings as its parameters, and media as artifacts; histograms it has none.

    Characters that MLflow allows in no name are replaced: ``mean@1`` is ``mean_at_1``.

    Args:
        save_dir: the run's folder.
        run_name: what the run is called.
        iterations_done: of the checkpoint; 0 without one.
        resumed_from: folder of the run that is resumed.
        experiment_name: that the run belongs to.
        tracking_uri: of the server or data base; None for MLFLOW_TRACKING_URI, and ``sqlite:///mlflow.db`` without.
        tags: of the run.
    """

    def __init__(
        self,
        save_dir: str,
        run_name: str,
        iterations_done: int = 0,
        resumed_from: Path | None = None,
        experiment_name: str = "ngrpo",
        tracking_uri: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        super().__init__("mlflow", save_dir, run_name, iterations_done, resumed_from)
        require("sqlalchemy", "logger=mlflow", extra="mlflow")
        self._experiment_name = experiment_name
        self._uri = tracking_uri
        self._tags = dict(tags or {})
        self._run = ""

    def open(self, journal: Journal) -> tuple[Any, int]:
        """Creates the run, or finds the one that the journal's id was given to."""
        import mlflow
        from mlflow.exceptions import MlflowException

        uri = self._uri or mlflow.environment_variables.MLFLOW_TRACKING_URI.get() or _LOCAL
        try:
            client = mlflow.MlflowClient(uri, registry_uri=uri)
            self._run = self._found(client, journal.run) or self._created(client, journal.run)
            return client, self._last_step(client)
        except (MlflowException, ValueError, OSError) as error:
            raise SettingError(
                f"logger=mlflow cannot use logger.mlflow.tracking_uri={uri} ({first_line(error)}); give another, such "
                f"as {_LOCAL}."
            ) from error

    def _experiment_id(self, client: Any) -> str:
        found = client.get_experiment_by_name(self._experiment_name)
        return found.experiment_id if found is not None else client.create_experiment(self._experiment_name)

    def _found(self, client: Any, identifier: str) -> str:
        if not self.iterations_done:
            return ""
        query = f"tags.ngrpo_run = '{identifier}'"
        runs = client.search_runs([self._experiment_id(client)], query, max_results=1)
        if not runs:
            return ""
        client.update_run(runs[0].info.run_id, status="RUNNING")
        return str(runs[0].info.run_id)

    def _created(self, client: Any, identifier: str) -> str:
        tags = self._tags | {"ngrpo_run": identifier}
        return str(client.create_run(self._experiment_id(client), tags=tags, run_name=self.run_name).info.run_id)

    def _last_step(self, client: Any) -> int:
        names = client.get_run(self._run).data.metrics
        histories = (client.get_metric_history(self._run, name) for name in names)
        return max((point.step for history in histories for point in history), default=-1)

    def send(self, row: Row) -> None:
        """Logs a row in one transaction, then its media."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(allowed(tag), value, now, row.step) for tag, value in row.metrics.items()]
        if metrics:
            self._experiment.log_batch(self._run, metrics=metrics)
        for tag, medium in row.media.items():
            store(medium, self._experiment, self._run, f"{allowed(tag)}/{row.step:06d}")

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Makes settings the run's parameters; those of a resumed run stay as they were."""
        from mlflow.entities import Param

        known = self._experiment.get_run(self._run).data.params
        named = {allowed(name): value[:_LONGEST] for name, value in flat(dict(settings))}
        new = [Param(name, value) for name, value in named.items() if name not in known]
        for some in _parts(new):
            self._experiment.log_batch(self._run, params=some)

    def close(self, succeeded: bool) -> None:
        """Says how the run ended."""
        self._experiment.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")


def allowed(name: str) -> str:
    """Returns a name that MLflow takes."""
    return re.sub(r"[^\w./: -]", "_", name.replace("@", "_at_"))


def _parts(params: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(params), _MOST_AT_ONCE):
        yield params[start : start + _MOST_AT_ONCE]


@singledispatch
def store(medium: Any, client: Any, run: str, path: str) -> None:
    """Stores a medium as an artifact; what has no file of its own kind is left out."""


@store.register
def _(medium: Image, client: Any, run: str, path: str) -> None:
    client.log_image(run, medium.opened(), f"{path}.png")


@store.register
def _(medium: Table, client: Any, run: str, path: str) -> None:
    table = {"columns": list(medium.columns), "data": [list(row) for row in medium.rows]}
    client.log_text(run, json.dumps(table), f"{path}.json")


@store.register
def _(medium: Text, client: Any, run: str, path: str) -> None:
    client.log_text(run, medium.markdown, f"{path}.md")


@store.register
def _(medium: Page, client: Any, run: str, path: str) -> None:
    client.log_artifact(run, medium.path)
