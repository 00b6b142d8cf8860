"""The supports of a response: the sets of token ids that its tokens were drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NO_ID = -1
"""Fills the places of a set that has fewer ids than others."""


@dataclass(frozen=True)
class Support:
    """The sets that truncated sampling drew from, one a position, without the places that rows of a tensor would waste.

    Attributes:
        counts: ids of each set, 0 where a token was drawn from the whole vocabulary; int32 [T].
        ids: the sets one after the other; int32 [sum of the counts].
    """

    counts: Tensor
    ids: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> "Support":
        """Returns the sets of rows that are filled up with `NO_ID`, on the CPU; integer [T, C]."""
        filled = rows != NO_ID
        return cls(filled.sum(-1).int().cpu(), rows[filled].int().cpu())

    @classmethod
    def whole(cls, positions: int) -> "Support":
        """Returns that of tokens that were drawn from the whole vocabulary."""
        return cls(torch.zeros(positions, dtype=torch.int32), torch.zeros(0, dtype=torch.int32))

    @classmethod
    def cat(cls, parts: Sequence["Support"]) -> "Support":
        """Joins the positions of several."""
        return cls(torch.cat([part.counts for part in parts]), torch.cat([part.ids for part in parts]))

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """Counts and ids."""
        return self.counts, self.ids

    def rows(self) -> Tensor:
        """Returns a set a row, filled up with `NO_ID`; int64 [T, C], C the most ids of a set."""
        counts = self.counts.long()
        places = torch.arange(int(counts.max()) if len(counts) else 0)
        rows = torch.full((len(counts), len(places)), NO_ID)
        rows[places < counts[:, None]] = self.ids.long()
        return rows

    def before(self, position: int) -> "Support":
        """Returns that of the first positions."""
        return Support(self.counts[:position], self.ids[: int(self.counts[:position].sum())])

    def after(self, position: int) -> "Support":
        """Returns that of the positions from ``position`` on."""
        return Support(self.counts[position:], self.ids[int(self.counts[:position].sum()) :])
