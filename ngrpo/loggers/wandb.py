"""Runs in Weights & Biases."""

import shutil
from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError, first_line
from ngrpo.loggers.journal import Journal, Row
from ngrpo.loggers.journaled import JournaledLogger
from ngrpo.loggers.media import Histogram, Image, Page, Table, Text

STEP = "iteration"
"""The metric that charts are drawn over: Weights & Biases' own step only counts rows."""


class Wandb(JournaledLogger):
    """Logs to Weights & Biases, or offline to ``wandb/`` in the run's folder.

    Offline, a resumed run's folder holds the whole run, in place of those of earlier processes.

    Args:
        save_dir: the run's folder.
        run_name: what the run is called.
        iterations_done: of the checkpoint; 0 without one.
        resumed_from: folder of the run that is resumed.
        project: that the run belongs to.
        mode: online | offline | disabled; None for what WANDB_MODE says.
        settings: further ones of ``wandb.init``, such as ``entity``, ``group`` and ``tags``.
    """

    def __init__(
        self,
        save_dir: str,
        run_name: str,
        iterations_done: int = 0,
        resumed_from: Path | None = None,
        project: str = "ngrpo",
        mode: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("wandb", save_dir, run_name, iterations_done, resumed_from)
        self._settings = {"project": project, "mode": mode, **settings}

    def open(self, journal: Journal) -> tuple[Any, int]:
        """Starts the run, or continues it."""
        import wandb

        quiet = wandb.Settings(console="off", silent=True)
        named = {"dir": self.save_dir, "id": journal.run, "name": journal.name, "resume": "allow", "settings": quiet}
        try:
            run = wandb.init(**(named | self._settings))
        except (wandb.errors.Error, ValueError, TypeError) as error:
            raise SettingError(
                f"logger=wandb cannot start a run ({first_line(error)}); call wandb login, or set "
                "logger.wandb.mode=offline."
            ) from error
        run.define_metric(STEP, hidden=True)
        run.define_metric("*", step_metric=STEP)
        if run.offline:
            self._remove_earlier(journal.run, Path(run.dir).parent)
            return run, -1
        return run, int(run.summary.get(STEP, -1))

    def _remove_earlier(self, identifier: str, present: Path) -> None:
        for folder in present.parent.glob(f"offline-run-*-{identifier}"):
            if folder.name != present.name and not folder.is_symlink():
                shutil.rmtree(folder)

    def send(self, row: Row) -> None:
        """Logs a row with its media."""
        media = {tag: of_wandb(medium) for tag, medium in row.media.items()}
        self._experiment.log({**row.metrics, **media, STEP: row.step})

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Makes settings the run's config."""
        self._experiment.config.update(dict(settings), allow_val_change=True)

    def close(self, succeeded: bool) -> None:
        """Waits until everything is written or sent."""
        self._experiment.finish(exit_code=0 if succeeded else 1)


@singledispatch
def of_wandb(medium: Any) -> Any:
    """Returns Weights & Biases' object for a medium."""
    raise TypeError(f"{type(medium).__name__} is no medium")


@of_wandb.register
def _(medium: Histogram) -> Any:
    import wandb

    return wandb.Histogram(np_histogram=(list(medium.counts), list(medium.edges)))


@of_wandb.register
def _(medium: Image) -> Any:
    import wandb

    return wandb.Image(medium.opened())


@of_wandb.register
def _(medium: Table) -> Any:
    import wandb

    return wandb.Table(columns=list(medium.columns), data=[list(row) for row in medium.rows])


@of_wandb.register
def _(medium: Text) -> Any:
    import wandb

    return wandb.Table(columns=["text"], data=[[medium.markdown]])


@of_wandb.register
def _(medium: Page) -> Any:
    import wandb

    return wandb.Html(Path(medium.path).read_text(encoding="utf-8"), inject=False)
