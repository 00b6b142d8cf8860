"""A chart of the report as data, without colours: the page gives it those of its theme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ngrpo.utils.numbers import significant

_DIGITS = 6
"""That count, in what the page draws: more cannot be seen, and every one takes a byte a point."""

Point = tuple[float, float]


class Chart(Protocol):
    """What the page shows of a chart.

    Attributes:
        name: id of its element.
        title: shown above it.
        note: one sentence on how it is read.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def title(self) -> str: ...  # noqa: D102

    @property
    def note(self) -> str: ...  # noqa: D102

    @property
    def numbers(self) -> tuple[list[str], list[list[str]]]:
        """Heading and rows of the table that says the same."""

    def drawing(self) -> dict[str, Any]:
        """Returns what the page's script draws, as plain values."""


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        label: in the legend.
        points: (x, y), x ascending.
        interval: lower and upper bound of each y; empty where unknown.
        dashed: drawn so.
        colour: its number in the theme; None for that of its place in the chart.
    """

    label: str
    points: Sequence[Point]
    interval: Sequence[tuple[float, float]] = ()
    dashed: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class LineChart:
    """Lines over a common x.

    Attributes:
        name: id of its element.
        title: shown above it.
        note: one sentence on how it is read.
        x_title: of the axis, with its unit.
        y_title: likewise.
        series: the lines, one or more.
        log_x: k = 1, 2, 4, ... are equally far apart.
        log_y: powers of ten are equally far apart; every y is positive.
        share: y is a share of 1: the axis ends at 0 and 1 at most.
        stacked: each line is drawn on top of those before it, and areas are filled.
    """

    name: str
    title: str
    note: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    share: bool = False
    stacked: bool = False

    @property
    def numbers(self) -> tuple[list[str], list[list[str]]]:
        """Heading and rows: each point of a short x, else where each line begins, ends and turns."""
        if self.log_x:
            xs = sorted({x for line in self.series for x, _ in line.points})
            return ["k", *(str(int(x)) for x in xs)], [[line.label, *_at(line, xs)] for line in self.series]
        rows = [[line.label, *map(significant, _ends([y for _, y in line.points]))] for line in self.series]
        return ["", "first", "last", "least", "most"], rows

    def drawing(self) -> dict[str, Any]:
        """Returns what the page's script draws, as plain values."""
        return {
            "kind": "lines",
            "xTitle": self.x_title,
            "yTitle": self.y_title,
            "logX": self.log_x,
            "logY": self.log_y,
            "share": self.share,
            "stacked": self.stacked,
            "series": [
                {
                    "label": line.label,
                    "dashed": line.dashed,
                    "colour": place if line.colour is None else line.colour,
                    "x": [x for x, _ in line.points],
                    "y": _rounded([y for _, y in line.points]),
                    "low": _rounded([low for low, _ in line.interval]),
                    "high": _rounded([high for _, high in line.interval]),
                }
                for place, line in enumerate(self.series)
            ],
        }


@dataclass(frozen=True)
class HeatMap:
    """Shares of 1 as a grid of tinted cells.

    Attributes:
        name: id of its element.
        title: shown above it.
        note: one sentence on how it is read.
        x_title: of the columns.
        y_title: of the rows.
        columns: their labels.
        rows: the name and the values of each row, from the top; a row may be shorter than there are columns.
        numbers: heading and rows of the table that sums it up.
    """

    name: str
    title: str
    note: str
    x_title: str
    y_title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    numbers: tuple[list[str], list[list[str]]]

    def drawing(self) -> dict[str, Any]:
        """Returns what the page's script draws, as plain values."""
        return {
            "kind": "cells",
            "xTitle": self.x_title,
            "yTitle": self.y_title,
            "columns": list(self.columns),
            "rows": [{"label": name, "values": _rounded(values)} for name, values in self.rows],
        }


def _at(line: Series, xs: Sequence[float]) -> list[str]:
    known = {x: (y, line.interval[place] if line.interval else None) for place, (x, y) in enumerate(line.points)}
    return [_with_interval(*known[x]) if x in known else "" for x in xs]


def _with_interval(value: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return significant(value)
    return f"{significant(value)} [{significant(interval[0])}, {significant(interval[1])}]"


def _ends(values: Sequence[float]) -> tuple[float, float, float, float]:
    return values[0], values[-1], min(values), max(values)


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
