r"""Matrices and column vectors, with a factor in front or not; determinants are left to the grammar of expressions."""

import re
from dataclasses import dataclass

from sympy import Basic, Integer

from ngrpo.rewards.answers.latex import expression
from ngrpo.rewards.answers.limits import MAX_ITEMS
from ngrpo.rewards.answers.values import same_value

_MATRIX = re.compile(
    r"(?P<factor>[^&]*?)[(\[]? ?\\begin\{(?:[pbB]?(?:small)?matrix|array)\}(?:\{[lcr| ]*\})?"
    r"(?P<body>.*)\\end\{(?:[pbB]?(?:small)?matrix|array)\} ?[)\]]?(?:\^\{?(?:T|\\top)\}?)?"
)
_FACTORS = {"": Integer(1), "-": Integer(-1)}


@dataclass(frozen=True)
class Matrix:
    """Entries in rows."""

    rows: tuple[tuple[Basic, ...], ...]

    def equals(self, other: "Matrix") -> bool:
        """The same shape and equal entries; the kind of bracket does not count."""
        if [len(row) for row in self.rows] != [len(row) for row in other.rows]:
            return False
        pairs = zip(self.rows, other.rows, strict=True)
        return all(same_value(a, b) for first, second in pairs for a, b in zip(first, second, strict=True))


def read_matrix(text: str) -> Matrix | None:
    """Read a tidy text as a matrix; None if it is none or an entry cannot be read."""
    match = _MATRIX.fullmatch(text) if r"\begin{" in text else None
    if match is None or r"\begin" in match["body"]:
        return None
    written = match["factor"].strip().removesuffix(r"\cdot").strip()
    factor = _FACTORS.get(written) or expression(written)
    lines = [line for line in re.split(r"\\\\", match["body"]) if line.strip(" \\hline")]
    cells = [[expression(cell) for cell in line.split("&")] for line in lines]
    if factor is None or sum(map(len, cells)) > MAX_ITEMS or any(cell is None for row in cells for cell in row):
        return None
    rows = tuple(tuple(factor * cell for cell in row if cell is not None) for row in cells)
    transposed = text.rstrip("}").endswith(("T", r"\top"))
    return Matrix(tuple(zip(*rows, strict=True)) if transposed else rows)
