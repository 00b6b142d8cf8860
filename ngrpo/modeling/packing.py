"""Rollouts packed into one row without padding, with all that replaying and scoring them needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ngrpo.exploration.context import RowContext
from ngrpo.modeling.shared_prompts import LEAST_REPEATED, SharedPrompts
from ngrpo.modeling.transfer import onto
from ngrpo.types.records import Record, Step
from ngrpo.types.rollouts import Rollout
from ngrpo.types.support import Support


@dataclass(frozen=True)
class PackedBatch:
    """S sequences (prompt + response) in N rows, R of them generated, M of them mixed.

    A prefix that was given to a response is context, as the prompt is: it is replayed, and not scored. Where prompts
    are shared, a prompt has rows in the first of its sequences only; else N is the sum of all lengths.

    Attributes:
        tokens: int64 [N].
        positions: of each token in its sequence, from 0; int64 [N].
        keys: the request key of each token's sequence; int64 [N].
        lengths: tokens of each sequence, prompt included; S ints.
        response_lengths: generated tokens of each sequence; int64 [S].
        scored_rows: the row that scores each generated token, i.e. that of the token before it; int64 [R].
        response_slots: the row of each generated token; int64 [R].
        state_rows: the rows before each generated token and after the last, sequence by sequence; int64 [R + S].
        mixed_slots: rows whose input comes from the record; int64 [M].
        record: what stands there; the ids are int64 [M, K].
        support: the set that each generated token was drawn from, as in `Step`; int64 [R, C], None where all were drawn
            from the whole vocabulary.
        partly_whole: there is a support, and some were drawn from the whole vocabulary.
        shared: where the rows of shared prompts belong; None without any.
    """

    tokens: Tensor
    positions: Tensor
    keys: Tensor
    lengths: list[int]
    response_lengths: Tensor
    scored_rows: Tensor
    response_slots: Tensor
    state_rows: Tensor
    mixed_slots: Tensor
    record: Record
    support: Tensor | None = None
    partly_whole: bool = False
    shared: SharedPrompts | None = None

    def to(self, device: torch.device) -> "PackedBatch":
        """Returns the batch on ``device``."""
        moved: dict[str, Any] = {n: onto(value, device) for n, value in vars(self).items() if isinstance(value, Tensor)}
        shared = None if self.shared is None else self.shared.to(device)
        return replace(self, **moved, record=self.record.map(lambda channel: onto(channel, device)), shared=shared)

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


def pack(rollouts: Sequence[Rollout], share_prompts: bool = False) -> PackedBatch:
    """Packs rollouts in their order; all must have records of one strategy.

    Token o_t of a sequence of P prompt tokens is scored by the row of its position P + t - 2.

    Args:
        rollouts: at least one.
        share_prompts: a prompt of several rollouts gets rows once, where these are enough to be worth it. It is never
            mixed, and no response sees another.
    """
    rows, total = _rows(rollouts, share_prompts)
    shared = SharedPrompts.of(torch.cat(rows), total)
    first = [len(r.prompt_ids) + r.prefix_length for r in rollouts]
    states = [at[start - 1 :] for at, start in zip(rows, first, strict=True)]
    record = Record.cat([r.mixture.record for r in rollouts])
    support = _generated_support(rollouts)

    def by_row(values: list[Tensor]) -> Tensor:
        return torch.cat(values) if shared is None else torch.cat(values)[shared.slot_of]

    return PackedBatch(
        tokens=by_row([torch.cat((r.prompt_ids, r.response_ids)) for r in rollouts]),
        positions=by_row([torch.arange(r.tokens) for r in rollouts]),
        keys=by_row([torch.full((r.tokens,), r.key) for r in rollouts]),
        lengths=[r.tokens for r in rollouts],
        response_lengths=torch.tensor([r.generated for r in rollouts]),
        scored_rows=torch.cat([at[:-1] for at in states]),
        response_slots=torch.cat([at[1:] for at in states]),
        state_rows=torch.cat(states),
        mixed_slots=torch.cat([at[r.mixture.positions] for r, at in zip(rollouts, rows, strict=True)]),
        record=record._replace(ids=record.ids.long()),
        support=None if support is None else support.rows(),
        partly_whole=support is not None and not bool(support.counts.all()),
        shared=shared,
    )


def first_with_prompt(rollouts: Sequence[Rollout]) -> list[int]:
    """Returns for each rollout the index of the first that has the same prompt."""
    first: dict[bytes, int] = {}
    return [first.setdefault(r.prompt_ids.numpy().tobytes(), index) for index, r in enumerate(rollouts)]


def _rows(rollouts: Sequence[Rollout], share_prompts: bool) -> tuple[list[Tensor], int]:
    """Returns the row of each token of each rollout, int64 [P + T] each, and the number of rows."""
    first = _sharers(rollouts) if share_prompts else range(len(rollouts))
    rows: list[Tensor] = []
    total = 0
    for index, rollout in enumerate(rollouts):
        shared = rows[first[index]][: len(rollout.prompt_ids)] if first[index] < index else torch.arange(0)
        own = rollout.tokens - len(shared)
        rows.append(torch.cat((shared, torch.arange(total, total + own))))
        total += own
    return rows, total


def _sharers(rollouts: Sequence[Rollout]) -> Sequence[int]:
    """Returns for each rollout the index of that whose prompt's rows it has; its own where little would be saved."""
    alone = range(len(rollouts))
    # One token is little to save, and a size of 1 would be a graph of its own to the compiler.
    known = zip(alone, first_with_prompt(rollouts), rollouts, strict=True)
    first = [at if len(rollout.prompt_ids) > 1 else index for index, at, rollout in known]
    repeated = sum(len(r.prompt_ids) for index, at, r in zip(alone, first, rollouts, strict=True) if at < index)
    return first if repeated >= LEAST_REPEATED * sum(r.tokens for r in rollouts) else alone


def _generated_support(rollouts: Sequence[Rollout]) -> Support | None:
    """Returns that of all generated tokens, None where nothing was truncated."""
    if not any(r.support is not None and len(r.support.ids) for r in rollouts):
        return None
    parts = [Support.whole(r.generated) if r.support is None else r.support.after(r.prefix_length) for r in rollouts]
    return Support.cat(parts)
