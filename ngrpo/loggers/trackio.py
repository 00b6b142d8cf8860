"""Runs in Trackio."""

import contextlib
import io
from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any

from ngrpo.loggers.journal import Journal, Row
from ngrpo.loggers.journaled import JournaledLogger
from ngrpo.loggers.media import Histogram, Image, Page, Table, Text


class Trackio(JournaledLogger):
    """Logs to Trackio: to its data base on this machine (TRACKIO_DIR), or to a Space.

    On this machine a resumed run is written anew from its journal; what a Space was given stays there.

    Args:
        save_dir: the run's folder.
        run_name: what the run is called.
        iterations_done: of the checkpoint; 0 without one.
        resumed_from: folder of the run that is resumed.
        project: that the run belongs to.
        space_id: a Hugging Face Space, ``user/name``; None logs to this machine.
        settings: further ones of ``trackio.init``.
    """

    def __init__(
        self,
        save_dir: str,
        run_name: str,
        iterations_done: int = 0,
        resumed_from: Path | None = None,
        project: str = "ngrpo",
        space_id: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("trackio", save_dir, run_name, iterations_done, resumed_from)
        self._project = project
        self._space = space_id
        self._settings = settings

    def open(self, journal: Journal) -> tuple[Any, int]:
        """Starts the run under a name that holds its id: Trackio finds a run by its name."""
        import trackio

        name = f"{journal.name}-{journal.run}"
        local = self._space is None and "server_url" not in self._settings
        if local:
            self._remove_earlier(name)
        quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        with contextlib.redirect_stdout(io.StringIO()):
            run = trackio.init(self._project, name, space_id=self._space, resume="allow", **(quiet | self._settings))
        return run, -1 if local else journal.last

    def _remove_earlier(self, name: str) -> None:
        import trackio

        with contextlib.suppress(ValueError):  # there is no such project yet
            for run in trackio.Api().runs(self._project):
                if run.name == name:
                    run.delete()

    def send(self, row: Row) -> None:
        """Logs a row with its media."""
        media = {tag: of_trackio(medium) for tag, medium in row.media.items()}
        self._experiment.log({**row.metrics, **media}, step=row.step)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Makes settings the run's config, which Trackio stores with the next row."""
        self._experiment.config.update(settings)

    def close(self, succeeded: bool) -> None:
        """Waits until everything is written or sent."""
        import trackio

        with contextlib.redirect_stdout(io.StringIO()):
            trackio.finish()


@singledispatch
def of_trackio(medium: Any) -> Any:
    """Returns Trackio's object for a medium."""
    raise TypeError(f"{type(medium).__name__} is no medium")


@of_trackio.register
def _(medium: Histogram) -> Any:
    import numpy as np
    import trackio

    return trackio.Histogram(np_histogram=(np.array(medium.counts), np.array(medium.edges)))


@of_trackio.register
def _(medium: Image) -> Any:
    import trackio

    return trackio.Image(medium.opened())


@of_trackio.register
def _(medium: Table) -> Any:
    import trackio

    return trackio.Table(columns=list(medium.columns), data=[list(row) for row in medium.rows])


@of_trackio.register
def _(medium: Text) -> Any:
    import trackio

    return trackio.Markdown(medium.markdown)


@of_trackio.register
def _(medium: Page) -> Any:
    import trackio

    return trackio.Html(medium.path)
