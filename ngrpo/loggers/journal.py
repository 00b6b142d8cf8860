"""The journal of a run: all that was logged, on this disk, for services that take nothing back.

A service that buffers loses what it was given when the process is killed, and one that is told an iteration twice shows
it twice. With the journal a resumed run tells it exactly what it lacks.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngrpo.loggers.media import Medium, as_json, from_json
from ngrpo.utils.atomic_write import write_text


@dataclass
class Row:
    """What is logged of one step.

    Attributes:
        step: finished iterations.
        metrics: by tag.
        media: by tag.
    """

    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    media: dict[str, Medium] = field(default_factory=dict)

    def without(self, tags: Set[str]) -> "Row":
        """Returns what the row has under other tags."""
        metrics = {tag: value for tag, value in self.metrics.items() if tag not in tags}
        return Row(self.step, metrics, {tag: medium for tag, medium in self.media.items() if tag not in tags})

    def add(self, other: "Row") -> None:
        """Takes over what another row has of the same step."""
        self.metrics |= other.metrics
        self.media |= other.media


class Journal:
    """A file of JSON lines: the run's id, then rows.

    Args:
        file: of the run.
        source: the journal of the run that is resumed, perhaps the same file.
        before: rows from this step on are dropped; 0 begins a new run.
        name: of a new run.

    Attributes:
        run: the run's id in the service: that of the source, or a new one.
        name: what the run is called there, in the same way.
        last: the last step of which the earlier process had logged anything; -1 without one.
    """

    def __init__(self, file: Path, source: Path, before: int, name: str = "") -> None:
        self.file = file
        header, rows = _read(source) if before and source.is_file() else ({}, [])
        self.run = str(header.get("run") or uuid.uuid4().hex[:8])
        self.name = str(header.get("name") or name)
        self.last = max((row.step for row in rows), default=-1)
        self._earlier = rows
        self._kept = [row for row in rows if row.step < before]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(
            file,
            "".join(
                f"{line}\n" for line in [json.dumps({"run": self.run, "name": self.name}), *map(_line, self._kept)]
            ),
        )

    def append(self, row: Row) -> None:
        """Writes a row; it is out of this process when the call returns."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{_line(row)}\n")

    def given(self, step: int) -> set[str]:
        """Returns the tags that the earlier process had logged of a step."""
        return {tag for row in self._earlier if row.step == step for tag in (*row.metrics, *row.media)}

    def kept(self) -> list[Row]:
        """Returns the rows of the earlier process, one a step, in order."""
        return merged(self._kept)


def merged(rows: Iterable[Row]) -> list[Row]:
    """Returns one row a step, in order of the steps."""
    found: dict[int, Row] = {}
    for row in rows:
        found.setdefault(row.step, Row(row.step)).add(row)
    return [found[step] for step in sorted(found)]


def _line(row: Row) -> str:
    media = {tag: as_json(medium) for tag, medium in row.media.items()}
    return json.dumps({"step": row.step, "metrics": row.metrics, "media": media})


def _read(file: Path) -> tuple[Mapping[str, Any], list[Row]]:
    """Reads the header and the rows; a torn last line is none."""
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    header, *rows = lines or [{}]
    return header, [_row(stored) for stored in rows]


def _row(stored: Mapping[str, Any]) -> Row:
    media = {tag: from_json(one) for tag, one in stored["media"].items()}
    return Row(stored["step"], stored["metrics"], {tag: medium for tag, medium in media.items() if medium is not None})
