"""The page that compares several runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ngrpo.errors import SettingError
from ngrpo.evaluation.benchmark_report import Estimate
from ngrpo.report.compared_runs import Arm, ComparedRun, arms, read_run
from ngrpo.report.html import render
from ngrpo.report.overlays import overlays
from ngrpo.report.page import drawings
from ngrpo.report.paired_runs import Pairing, Row, pairings
from ngrpo.report.run_facts import moment, short_commit
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.numbers import fixed

_Table = tuple[list[str], list[list[str]]]


def write_comparison(run_dirs: Sequence[Path], out: Path) -> Path:
    """Writes the comparison of two or more runs, whole or not at all, and returns its path.

    Raises:
        SettingError: a folder has no record, or is named twice.
    """
    write_text(out, comparison(run_dirs, datetime.now(UTC)))
    return out


def comparison(run_dirs: Sequence[Path], written: datetime) -> str:
    """Returns the page that compares two or more runs; what is said of `ngrpo.report.page.page` holds here too.

    Args:
        run_dirs: the runs' folders; the first is what the others are compared with.
        written: the present time, UTC.

    Raises:
        SettingError: a folder has no record, or is named twice.
    """
    places = [run_dir.resolve() for run_dir in run_dirs]
    twice = next((run_dir for run_dir, place in zip(run_dirs, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise SettingError(f"{twice} is named twice; name each run once.")
    compared = arms([read_run(run_dir) for run_dir in run_dirs])
    drawn = overlays(compared)
    return render(
        "comparison.html.jinja",
        ("charts.js",),
        title=f"{len(run_dirs)} runs compared",
        written=moment(written.isoformat()),
        version="",
        newer=None,
        runs=runs_table(compared),
        pairings=[(pairing.title, paired_table(compared, pairing)) for pairing in pairings_of(compared)],
        seeds=any(len(arm.runs) > 1 for arm in compared),
        sections=drawn,
        drawings=drawings(drawn),
    )


def pairings_of(compared: Sequence[Arm]) -> list[Pairing]:
    """Returns the paired differences; none of runs that differ in the seed alone."""
    return pairings(compared) if len(compared) > 1 else []


def runs_table(compared: Sequence[Arm]) -> _Table:
    """Returns a row a run: where it is, its seed, how far it came, when it began."""
    rows = [[label, *_told(run)] for arm in compared for label, run in arm.runs.items()]
    return ["run", "seed", "iterations", "started", "commit", "folder"], rows


def _told(run: ComparedRun) -> list[str]:
    done, description = len(run.iterations), run.description
    seed = "" if run.seed is None else str(run.seed)
    if description is None:
        return [seed, str(done), "", "", str(run.run_dir)]
    iterations = f"{done} of {description.iterations}" if done < description.iterations else str(done)
    commit = short_commit(description.commit) or ""
    return [seed, iterations, moment(description.started), commit, str(run.run_dir)]


def paired_table(compared: Sequence[Arm], pairing: Pairing) -> _Table:
    """Returns a row a metric: every arm's value, and the paired differences to the first arm."""
    first, *others = [arm.label for arm in compared]
    heading = ["", first, *(text for label in others for text in (label, "difference [95 %]"))]
    return heading, [_cells(row) for row in pairing.rows]


def _cells(row: Row) -> list[str]:
    first, *others = row.values
    pairs = zip(others, row.differences, strict=True)
    return [row.metric, fixed(first), *(text for value, one in pairs for text in (fixed(value), difference(one)))]


def difference(one: Estimate) -> str:
    """Returns a difference with its interval, and a star where it excludes 0."""
    star = " *" if one.low > 0 or one.high < 0 else ""
    low, high = fixed(one.low, signed=True), fixed(one.high, signed=True)
    return f"{fixed(one.value, signed=True)} [{low}, {high}]{star}"
