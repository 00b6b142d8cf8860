"""Media beside numbers: histograms, pictures, tables, texts and pages."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor

_BINS = 64


@dataclass(frozen=True)
class Histogram:
    """A distribution in bins of equal width.

    Attributes:
        counts: of each bin.
        edges: of the bins, one more than counts, ascending.
        total: sum of the values.
        squares: sum of their squares.
    """

    counts: tuple[int, ...]
    edges: tuple[float, ...]
    total: float
    squares: float

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Counts the values, finite and at least one, of any shape."""
        numbers = values.detach().double().flatten().cpu().numpy()
        counts, edges = np.histogram(numbers, bins=_BINS)
        total, squares = float(numbers.sum()), float(np.square(numbers).sum())
        return cls(tuple(map(int, counts)), tuple(map(float, edges)), total, squares)


@dataclass(frozen=True)
class Image:
    """A picture.

    Attributes:
        png: the file's bytes, base64.
    """

    png: str

    @classmethod
    def of(cls, png: bytes) -> Self:
        """Takes the bytes of a PNG file."""
        return cls(base64.b64encode(png).decode())

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return base64.b64decode(self.png)

    def opened(self) -> Any:
        """Opens it with Pillow, which the loggers that draw pictures bring with them; a ``PIL.Image.Image``."""
        from PIL import Image as Picture

        return Picture.open(BytesIO(self.data))


@dataclass(frozen=True)
class Text:
    """A text.

    Attributes:
        markdown: the text.
    """

    markdown: str


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers.

    Attributes:
        columns: their names.
        rows: cells, a row as many as there are columns.
        markdown: the same for loggers that have no tables.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    markdown: str


@dataclass(frozen=True)
class Page:
    """An HTML page in a file.

    Attributes:
        path: of the file.
    """

    path: str


Medium = Histogram | Image | Text | Table | Page

_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (Histogram, Image, Text, Table, Page)}


def as_json(medium: Medium) -> dict[str, Any]:
    """Returns what `from_json` makes the medium of."""
    return {"kind": type(medium).__name__, **asdict(medium)}


def from_json(stored: Mapping[str, Any]) -> Medium | None:
    """Returns a stored medium; None for a page whose file has gone."""
    fields = dict(stored)
    medium: Medium = _KINDS[fields.pop("kind")](**fields)
    return None if isinstance(medium, Page) and not Path(medium.path).is_file() else medium
