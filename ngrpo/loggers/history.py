"""The history of a run in its log files, as earlier processes have written it."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

_EVENTS = "events.out.tfevents."


def rename_future_events(folder: Path, now: int) -> None:
    """Renames event files if they are from a future that the clock has left: readers take them by the time in the name.

    Args:
        folder: of the files.
        now: seconds since 1970.
    """
    files = sorted(folder.glob(f"{_EVENTS}*"))
    if files and _seconds(files[-1]) >= now:
        for number, file in enumerate(files):
            rest = file.name.removeprefix(_EVENTS).partition(".")[2]
            file.rename(file.with_name(f"{_EVENTS}{number:010d}.{rest}"))


def _seconds(file: Path) -> int:
    written = file.name.removeprefix(_EVENTS).partition(".")[0]
    return int(written) if written.isdecimal() else 0


def rows_before(file: Path, step: int) -> list[dict[str, str]]:
    """Returns the rows of a table of metrics whose step is before ``step``; of a torn last line nothing is returned."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as rows:
        whole = [row for row in csv.DictReader(rows) if None not in row.values() and row.get("step", "").isdecimal()]
    return [row for row in whole if int(row["step"]) < step]


def table(names: list[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Returns the text of a table of metrics."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=names)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
