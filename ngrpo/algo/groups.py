"""Groups: the responses to one prompt, identified by the prompt's key and never by their position in the batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """Positions of S responses in a table with a row a prompt.

    Groups may differ in size: the table is as wide as the largest, G, and NaN fills the rest, which every statistic
    excludes like an unscored sample.

    Attributes:
        rows: int64 [S], the prompt.
        columns: int64 [S], the index among the responses to it.
    """

    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, keys: Sequence[int]) -> "Groups":
        """Puts responses with equal keys into one row; [S] keys, rows in order of first appearance."""
        rows: dict[int, int] = {}
        sizes: dict[int, int] = {}
        cells = []
        for key in keys:
            cells.append((rows.setdefault(key, len(rows)), sizes.get(key, 0)))
            sizes[key] = sizes.get(key, 0) + 1
        return cls(*torch.tensor(cells, dtype=torch.int64).view(-1, 2).unbind(-1))

    @property
    def shape(self) -> tuple[int, int]:
        """(P, G): prompts and size of the largest group; 0 each without responses."""
        if not len(self.rows):
            return 0, 0
        return int(self.rows.max()) + 1, int(self.columns.max()) + 1

    def table(self, values: Tensor, fill: float = math.nan) -> Tensor:
        """Spreads ``values`` [S] over a table [P, G] of the same dtype; ``fill`` where a group is shorter."""
        out = values.new_full(self.shape, fill)
        out[self.rows, self.columns] = values
        return out

    def flat(self, table: Tensor) -> Tensor:
        """Takes each response's entry out of a table; [..., P, G] -> [..., S]."""
        return table[..., self.rows, self.columns]
