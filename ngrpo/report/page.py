"""report.html: one page with everything in it, made from a run's folder."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ngrpo.errors import SettingError
from ngrpo.report.browsable import browsable_rollouts
from ngrpo.report.figures import Section, sections
from ngrpo.report.html import render
from ngrpo.report.run_facts import facts, moment, read_summary, tiles, title
from ngrpo.report.run_store import FOLDER, RunStore
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.sanitize import visible

PAGE = "report.html"
VERSION = "version.css"
"""In the record's folder: a style sheet by which an open page finds out that a newer one was written.

A page that was opened as a file may not read other files, but it may take style sheets from them.
"""

_MOST_TOKENS = 100_000
"""Of rollouts in a page, about 3 MB; the record may hold more."""


def write_page(run_dir: Path) -> Path:
    """Writes ``report.html`` into a run's folder, whole or not at all, and returns its path.

    Raises:
        SettingError: the folder has no record.
    """
    written = datetime.now(UTC)
    final = run_dir / PAGE
    write_text(final, page(run_dir, written))
    write_text(run_dir / FOLDER / VERSION, _newer_than_all_but(_version(written)))
    return final


def page(run_dir: Path, written: datetime) -> str:
    """Returns the page of a run.

    All that a model or a data set wrote reaches it through autoescaping or as JSON that cannot end its element, and the
    page's script puts it into text nodes only.

    Args:
        run_dir: the run's folder.
        written: the present time, UTC; tells one version of the page from another.

    Raises:
        SettingError: the folder has no record.
    """
    store = RunStore(run_dir)
    if not store.exists:
        raise SettingError(f"{run_dir} holds no record of a run; give a run's folder (callbacks.run_record writes it).")
    iterations, evaluations, description = store.iterations(), store.evaluations(), store.description()
    planned = None if description is None else description.iterations
    summary = read_summary(run_dir)
    drawn = sections(iterations, evaluations)
    return render(
        "report.html.jinja",
        ("charts.js", "browser.js", "newer.js"),
        title=title(run_dir, summary, description),
        tiles=tiles(summary, planned, iterations, evaluations),
        facts=facts(run_dir, summary, description),
        changed={} if description is None else description.changed,
        warnings=[(moment(warning.time), visible(warning.message)) for warning in store.warnings()],
        written=moment(written.isoformat()),
        version=_version(written),
        newer=f"{FOLDER}/{VERSION}" if planned is not None and len(iterations) < planned else None,
        sections=drawn,
        drawings=drawings(drawn),
        rollouts=browsable_rollouts(store, _MOST_TOKENS),
    )


def drawings(drawn: Sequence[Section]) -> dict[str, object]:
    """Returns what the script draws, by the name of the chart."""
    return {chart.name: chart.drawing() for section in drawn for chart in section.charts}


def _version(written: datetime) -> str:
    return f"{written:%Y%m%d%H%M%S%f}"


def _newer_than_all_but(version: str) -> str:
    return f'html:not([data-version="{version}"]) #newer {{ display: flex; }}\n'
