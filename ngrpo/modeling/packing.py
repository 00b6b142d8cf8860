"""Rollouts packed into one row without padding, with all that replaying and scoring them needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ngrpo.exploration.context import RowContext
from ngrpo.modeling.transfer import onto
from ngrpo.types.records import Record, Step
from ngrpo.types.rollouts import Rollout
from ngrpo.types.support import Support


@dataclass(frozen=True)
class PackedBatch:
    """S sequences (prompt + response) of N tokens in all, R of them generated, M of them mixed.

    A prefix that was given to a response is context, as the prompt is: it is replayed, and not scored.

    Attributes:
        tokens: int64 [N].
        positions: restarting at 0 in each sequence; int64 [N].
        keys: the request key of each token's sequence; int64 [N].
        lengths: tokens of each sequence; S ints.
        response_lengths: generated tokens of each sequence; int64 [S].
        scored_rows: the output row that scores each generated token, i.e. the slot before it; int64 [R].
        response_slots: the slot of each generated token; int64 [R].
        mixed_slots: slots whose input comes from the record; int64 [M].
        record: what stands there; the ids are int64 [M, K].
        support: the set that each generated token was drawn from, as in `Step`; int64 [R, C], None where all were drawn
            from the whole vocabulary.
        partly_whole: there is a support, and some were drawn from the whole vocabulary.
    """

    tokens: Tensor
    positions: Tensor
    keys: Tensor
    lengths: list[int]
    response_lengths: Tensor
    scored_rows: Tensor
    response_slots: Tensor
    mixed_slots: Tensor
    record: Record
    support: Tensor | None = None
    partly_whole: bool = False

    @property
    def state_rows(self) -> Tensor:
        """The output rows before each generated token and after the last, sequence by sequence; int64 [R + S]."""
        visited = torch.zeros_like(self.tokens, dtype=torch.bool)
        visited[self.scored_rows] = visited[self.response_slots] = True
        return visited.nonzero()[:, 0]

    def to(self, device: torch.device) -> "PackedBatch":
        """Returns the batch on ``device``."""
        moved: dict[str, Any] = {n: onto(value, device) for n, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved, record=self.record.map(lambda channel: onto(channel, device)))

    def steps(self) -> Step:
        """Returns the recorded decision of every generated token, R rows."""
        slots = len(self.tokens)

        def at_responses(channel: Tensor) -> Tensor:
            everywhere = channel.new_zeros(slots, *channel.shape[1:])
            everywhere[self.mixed_slots] = channel
            return everywhere[self.response_slots]

        mixed = at_responses(torch.ones_like(self.mixed_slots, dtype=torch.bool))
        recorded = self.record.map(at_responses)
        return Step(self.tokens[self.response_slots], mixed, *recorded, support=self.support)

    def mixed_steps(self) -> Step:
        """Returns those of the mixed positions alone, M rows."""
        mixed = torch.ones_like(self.mixed_slots, dtype=torch.bool)
        return Step(self.tokens[self.mixed_slots], mixed, *self.record)

    def context(self, slots: Tensor, embedding: Tensor) -> RowContext:
        """Returns where the tokens ``slots`` stand, for a model with this embedding table."""
        return RowContext(self.keys[slots], self.positions[slots], embedding)


def pack(rollouts: Sequence[Rollout]) -> PackedBatch:
    """Packs rollouts in their order; all must have records of one strategy.

    Token o_t of a sequence that starts at slot s stands at slot s + P + t - 1 and is scored by the row before it.
    """
    lengths = [r.tokens for r in rollouts]
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0).tolist()
    slots = [
        torch.arange(start + len(r.prompt_ids) + r.prefix_length, start + total)
        for r, start, total in zip(rollouts, starts, lengths, strict=True)
    ]
    response_slots = torch.cat(slots)
    record = Record.cat([r.mixture.record for r in rollouts])
    support = _generated_support(rollouts)
    return PackedBatch(
        tokens=torch.cat([part for r in rollouts for part in (r.prompt_ids, r.response_ids)]),
        positions=torch.cat([torch.arange(total) for total in lengths]),
        keys=torch.tensor([r.key for r in rollouts]).repeat_interleave(torch.tensor(lengths)),
        lengths=lengths,
        response_lengths=torch.tensor([r.generated for r in rollouts]),
        scored_rows=response_slots - 1,
        response_slots=response_slots,
        mixed_slots=torch.cat([r.mixture.positions + s for r, s in zip(rollouts, starts, strict=True)]),
        record=record._replace(ids=record.ids.long()),
        support=None if support is None else support.rows(),
        partly_whole=support is not None and not bool(support.counts.all()),
    )


def _generated_support(rollouts: Sequence[Rollout]) -> Support | None:
    """Returns that of all generated tokens, None where nothing was truncated."""
    if not any(r.support is not None and len(r.support.ids) for r in rollouts):
        return None
    parts = [Support.whole(r.generated) if r.support is None else r.support.after(r.prefix_length) for r in rollouts]
    return Support.cat(parts)
