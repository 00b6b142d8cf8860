"""Prompts that several sequences of a packed batch have in common, computed once.

The rows of such a batch are the distinct ones: a prompt stands before the first of its responses only. All that a layer
does to each token by itself is done to these N rows. Attention sees the E slots of whole sequences, so that every
response attends as it does alone, by any kernel: queries, keys and values of a prompt are repeated before it, and what
attention makes of the repetitions is dropped. Gradients of repeated rows are added in float32.

After Prefix Grouper, arXiv 2506.05433, which also attends once for a prompt.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ngrpo.modeling.transfer import onto

LEAST_REPEATED = 0.04
"""Share of all tokens that must be repetitions of prompts; finding rows takes as long as 2.6 % of a pass (H200)."""


@dataclass(frozen=True)
class SharedPrompts:
    """Which of N distinct rows stands at each of E slots.

    Attributes:
        row_of: the row of each slot; int64 [E].
        slot_of: the first slot of each row, whose attention counts; int64 [N].
        repeated: the rows of several slots; int64 [D].
        slots: theirs in ascending order, then others; int64 [D, C].
        filled: which of them are theirs; bool [D, C].
        again: the slots of a row that are not its first; int64 [E - N].
    """

    row_of: Tensor
    slot_of: Tensor
    repeated: Tensor
    slots: Tensor
    filled: Tensor
    again: Tensor

    @classmethod
    def of(cls, row_of: Tensor, rows: int) -> "SharedPrompts | None":
        """Finds the slots of each of N ``rows``; None if every row has one slot. ``row_of`` is int64 [E]."""
        if rows == len(row_of):
            return None
        counts = torch.bincount(row_of, minlength=rows)
        by_row, starts = row_of.argsort(stable=True), counts.cumsum(0) - counts
        repeated, place = (counts > 1).nonzero()[:, 0], torch.arange(int(counts.max()))
        slots = by_row[(starts[repeated, None] + place).clamp(max=len(by_row) - 1)]
        later = torch.ones_like(row_of, dtype=torch.bool)
        later[by_row[starts]] = False
        return cls(row_of, by_row[starts], repeated, slots, place < counts[repeated, None], later.nonzero()[:, 0])

    def to(self, device: torch.device) -> "SharedPrompts":
        """Returns them on ``device``."""
        return replace(self, **{name: onto(value, device) for name, value in vars(self).items()})

    def keys_at_slots(self, rows: Tensor) -> Tensor:
        """Returns the row of each slot, for keys and values; [1, H, N, D] -> [1, H, E, D]."""
        return self._at_slots(rows, self.repeated, self.slots, self.filled)

    def queries_at_slots(self, rows: Tensor) -> Tensor:
        """Returns the same for queries, to which nothing flows back from later slots of a row."""
        return self._at_slots(rows, self.repeated[:0], self.slots[:0], self.filled[:0])

    def _at_slots(self, rows: Tensor, *repeated: Tensor) -> Tensor:
        made: Tensor = at_slots(_flat(rows), self.row_of, self.slot_of, *repeated)
        return _by_head(made, rows)

    def at_rows(self, attended: Tensor) -> Tensor:
        """Returns what is at the first slot of each row; [1, H, E, D] -> [1, H, N, D]."""
        made: Tensor = at_rows(_flat(attended), self.row_of, self.slot_of, self.again)
        return _by_head(made, attended)


def _flat(heads: Tensor) -> Tensor:
    """[1, H, N, D] -> [N, HD]."""
    return heads.squeeze(0).transpose(0, 1).flatten(1)  # the gradient of an index would be a copy


def _by_head(rows: Tensor, like: Tensor) -> Tensor:
    """[E, HD] -> [1, H, E, D], as many heads as another."""
    return rows.view(-1, like.shape[1], like.shape[3]).transpose(0, 1).unsqueeze(0)


# Operators of their own: the compiler's gradient of an index is added with atomics, in any order and in bfloat16.
# Rows are read by an index, which runs at the speed of a copy on a GPU, and not written by one, which takes three times
# as long.
@torch.library.custom_op("ngrpo::at_slots", mutates_args=())
def at_slots(rows: Tensor, row_of: Tensor, slot_of: Tensor, repeated: Tensor, slots: Tensor, filled: Tensor) -> Tensor:
    """Returns [N, W] at each slot; [E, W]. See `SharedPrompts`."""
    return rows[row_of]


@at_slots.register_fake
def _(rows: Tensor, row_of: Tensor, slot_of: Tensor, repeated: Tensor, slots: Tensor, filled: Tensor) -> Tensor:
    return rows.new_empty(row_of.shape[0], rows.shape[1])


@torch.library.custom_op("ngrpo::at_slots_backward", mutates_args=())
def at_slots_backward(gradient: Tensor, slot_of: Tensor, repeated: Tensor, slots: Tensor, filled: Tensor) -> Tensor:
    """Returns the sum of [E, W] over the slots of each row; [N, W]."""
    wide = torch.promote_types(gradient.dtype, torch.float32)
    made = gradient[slot_of]
    # All at a time, unless a short prompt has many more responses than a long one: no more than there are slots.
    at_a_time = max(1, len(gradient) // slots.shape[1])
    parts = (torch.split(part, at_a_time) for part in (repeated, slots, filled))
    for rows, places, theirs in zip(*parts, strict=True):
        of_repeated = gradient[places].masked_fill(~theirs[..., None], 0).sum(1, dtype=wide)
        made.index_copy_(0, rows, of_repeated.to(gradient.dtype))
    return made


@at_slots_backward.register_fake
def _(gradient: Tensor, slot_of: Tensor, repeated: Tensor, slots: Tensor, filled: Tensor) -> Tensor:
    return gradient.new_empty(slot_of.shape[0], gradient.shape[1])


@torch.library.custom_op("ngrpo::at_rows", mutates_args=())
def at_rows(slots: Tensor, row_of: Tensor, slot_of: Tensor, again: Tensor) -> Tensor:
    """Returns [E, W] at the first slot of each row; [N, W]."""
    return slots[slot_of]


@at_rows.register_fake
def _(slots: Tensor, row_of: Tensor, slot_of: Tensor, again: Tensor) -> Tensor:
    return slots.new_empty(slot_of.shape[0], slots.shape[1])


@torch.library.custom_op("ngrpo::at_rows_backward", mutates_args=())
def at_rows_backward(gradient: Tensor, row_of: Tensor, again: Tensor) -> Tensor:
    """Returns [N, W] at the first slot of each row, and 0 at the others; [E, W]."""
    return gradient[row_of].index_fill_(0, again, 0)


@at_rows_backward.register_fake
def _(gradient: Tensor, row_of: Tensor, again: Tensor) -> Tensor:
    return gradient.new_empty(row_of.shape[0], gradient.shape[1])


def _keep_for_slots(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[2:])


def _to_rows(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return at_slots_backward(gradient, *ctx.saved_tensors), *(None,) * 5


def _keep_for_rows(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    _, row_of, _, again = inputs
    ctx.save_for_backward(row_of, again)


def _to_slots(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return at_rows_backward(gradient, *ctx.saved_tensors), None, None, None


at_slots.register_autograd(_to_rows, setup_context=_keep_for_slots)
at_rows.register_autograd(_to_slots, setup_context=_keep_for_rows)
