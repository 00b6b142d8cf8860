"""The rows of a burst on the device, and what happens to them between two forwards."""

from typing import NamedTuple

import torch
from torch import Tensor


class BurstRows(NamedTuple):
    """The rows of a burst, at addresses that CUDA graphs keep.

    Attributes:
        states: vLLM's index of each row's request; int64 [R].
        addresses: of the rows' slots, -1 for none; int64 [R].
        limits: most tokens of each row, prompt included; int64 [R].
        tokens: chosen last; int64 [R].
        live: the row has not ended; bool [R].
        made: tokens that were chosen while the row was live; int32 [R].
        chosen: int64 [R, N].
        step: where in ``chosen`` the next tokens go; int64 [1].
    """

    states: Tensor
    addresses: Tensor
    limits: Tensor
    tokens: Tensor
    live: Tensor
    made: Tensor
    chosen: Tensor
    step: Tensor

    @classmethod
    def empty(cls, rows: int, steps: int, device: torch.device) -> "BurstRows":
        """Returns room for so many rows."""

        def numbers() -> Tensor:
            return torch.zeros(rows, dtype=torch.int64, device=device)

        return cls(
            states=numbers(),
            addresses=numbers(),
            limits=numbers(),
            tokens=numbers(),
            live=torch.zeros(rows, dtype=torch.bool, device=device),
            made=torch.zeros(rows, dtype=torch.int32, device=device),
            chosen=torch.zeros(rows, steps, dtype=torch.int64, device=device),
            step=torch.zeros(1, dtype=torch.int64, device=device),
        )

    def first(self, rows: int) -> "BurstRows":
        """Returns views of the first rows."""
        return BurstRows._make([*(tensor[:rows] for tensor in self[:-1]), self.step])

    def fill(self, states: Tensor, addresses: Tensor, limits: Tensor, live: Tensor) -> None:
        """Begins a burst with the rows of a batch, [R] each; those beyond them, which pad it, are not live."""
        rows = len(states)
        given = (states, addresses, limits, live)
        for own, values, padding in zip((*self[:3], self.live), given, (0, -1, 0, False), strict=True):
            own[:rows] = values
            own[rows:] = padding
        self.made.zero_()
        self.step.zero_()


def note(rows: BurstRows, chosen: Tensor, lengths: Tensor, ends: Tensor) -> None:
    """Notes the tokens that were chosen for rows of so many tokens, and which rows they end.

    Args:
        rows: R of them.
        chosen: int64 [R].
        lengths: tokens of each row without the chosen one; integer [R].
        ends: the chosen token is a stop token; bool [R].
    """
    rows.chosen.scatter_(1, rows.step.expand(len(chosen))[:, None], chosen[:, None])
    rows.made.add_(rows.live)
    rows.live.logical_and_(~ends & (lengths + 1 < rows.limits))
    rows.tokens.copy_(chosen)
    rows.step.add_(1)


def advance(rows: BurstRows, input_ids: Tensor, positions: Tensor, lengths: Tensor) -> None:
    """Feeds live rows the tokens that were chosen for them; ended rows repeat their last step, into the same slot.

    Args:
        rows: R of them.
        input_ids: what the model reads; [R].
        positions: of these; [R].
        lengths: tokens of each row, the one that is fed included; [R].
    """
    input_ids.copy_(torch.where(rows.live, rows.tokens, input_ids))
    positions.add_(rows.live)
    lengths.add_(rows.live)


_compiled_note = torch.compile(note, dynamic=True)
_compiled_advance = torch.compile(advance, dynamic=True)
