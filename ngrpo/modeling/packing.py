"""Rollouts packed into one row without padding, with what is needed to replay and score them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ngrpo.exploration.base import Step
from ngrpo.rollout.types import Rollout


@dataclass(frozen=True)
class PackedBatch:
    """S sequences (prompt + response) of N tokens in all, R of them response tokens, M of them mixed.

    Attributes:
        tokens: int64 [N].
        positions: restarting at 0 in each sequence; int64 [N].
        lengths: tokens of each sequence; S ints.
        response_lengths: response tokens of each sequence; int64 [S].
        scored_rows: the output row that scores each response token, i.e. the slot before it; int64 [R].
        response_slots: the slot of each response token; int64 [R].
        mixed_slots: slots whose input is a mixture; int64 [M].
        mixed_ids: int64 [M, K].
        mixed_weights: float32 [M, K].
    """

    tokens: Tensor
    positions: Tensor
    lengths: list[int]
    response_lengths: Tensor
    scored_rows: Tensor
    response_slots: Tensor
    mixed_slots: Tensor
    mixed_ids: Tensor
    mixed_weights: Tensor

    def to(self, device: torch.device) -> "PackedBatch":
        """Returns the batch on ``device``."""

        def move(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        return PackedBatch(**{f.name: move(getattr(self, f.name)) for f in fields(self)})

    def steps(self) -> Step:
        """Returns the recorded decision of every response token, R rows."""
        rows, width = len(self.tokens), self.mixed_ids.shape[1]
        mixed = torch.zeros(rows, dtype=torch.bool, device=self.tokens.device)
        ids = self.tokens.new_zeros(rows, width)
        weights = self.mixed_weights.new_zeros(rows, width)
        mixed[self.mixed_slots] = True
        ids[self.mixed_slots] = self.mixed_ids
        weights[self.mixed_slots] = self.mixed_weights
        at = self.response_slots
        return Step(self.tokens[at], mixed[at], ids[at], weights[at])


def pack(rollouts: Sequence[Rollout]) -> PackedBatch:
    """Packs rollouts in their order; all must have mixtures of one width.

    Token o_t of a sequence that starts at slot s stands at slot s + P + t - 1 and is scored by the row before it.
    """
    lengths = [len(r.prompt_ids) + r.length for r in rollouts]
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0).tolist()
    slots = [
        torch.arange(start + len(r.prompt_ids), start + total)
        for r, start, total in zip(rollouts, starts, lengths, strict=True)
    ]
    response_slots = torch.cat(slots)
    return PackedBatch(
        tokens=torch.cat([part for r in rollouts for part in (r.prompt_ids, r.response_ids)]),
        positions=torch.cat([torch.arange(total) for total in lengths]),
        lengths=lengths,
        response_lengths=torch.tensor([r.length for r in rollouts]),
        scored_rows=response_slots - 1,
        response_slots=response_slots,
        mixed_slots=torch.cat([r.mixture.positions + s for r, s in zip(rollouts, starts, strict=True)]),
        mixed_ids=torch.cat([r.mixture.ids for r in rollouts]).long(),
        mixed_weights=torch.cat([r.mixture.weights for r in rollouts]),
    )
