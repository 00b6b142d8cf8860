"""Records as a field of verl's batches: put there by an agent loop, and found there by the actor."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.plugins.strategies import check_replayed_by_records, check_scored_by_token
from ngrpo.replay.records import RecordTensors
from ngrpo.types.rollouts import Rollout

FIELD = "exploration"
"""The field of a batch that holds a record for each of its rows."""

EXTRA = "extra_fields"
"""The field in which verl's newer trainer keeps the further fields of agent loops, a dictionary for each row."""

_TRAINED = "response_mask"


def fields(rollout: Rollout, strategy: Exploration) -> dict[str, dict[str, Tensor]]:
    """Returns what to add to the ``extra_fields`` of an AgentLoopOutput with a rollout's prompt and response.

    Args:
        rollout: that of the output.
        strategy: what made it.

    Raises:
        SettingError: verl would score the strategy's steps, or replay them, otherwise than they were made.
    """
    check_scored_by_token(strategy, "verl")
    check_replayed_by_records(strategy, "verl")
    whole = RecordTensors.of([rollout], torch.ones(1, rollout.tokens))
    return {FIELD: {name: tensor[0] for name, tensor in whole.tensors().items()}}


def records_in(batch: Any) -> list[Mapping[str, Tensor] | None] | None:
    """Returns what `fields` gave of each row of a batch of verl's; None if no row has a record.

    Rows that no token of is trained on have none: verl fills batches up with such, which are copies of another row but
    for their tokens.
    """
    names = set(batch.keys())
    if FIELD in names:
        found = list(batch[FIELD])
    elif EXTRA in names:
        found = [extra.get(FIELD) for extra in batch[EXTRA]]
    else:
        return None
    if _TRAINED in names:
        trained = [bool(mask.any()) for mask in batch[_TRAINED].unbind()]
        found = [row if counts else None for row, counts in zip(found, trained, strict=True)]
    return found if any(row is not None for row in found) else None


def packed(rows: Sequence[Mapping[str, Tensor] | None], lengths: Sequence[int]) -> RecordTensors:
    """Returns the records of packed rows, [1, N].

    Args:
        rows: what `fields` gave of each, None for one that saw its tokens alone; one at least has a record.
        lengths: tokens of each row in the batch, N in all.

    Raises:
        ValueError: a row has another number of tokens than its record.
    """
    known = [None if row is None else RecordTensors.from_tensors(row).map(lambda tensor: tensor[None]) for row in rows]
    example = next(part for part in known if part is not None)
    parts = []
    for number, (part, length) in enumerate(zip(known, lengths, strict=True)):
        if part is None:
            part = example.padded(right=-example.tokens.shape[1]).padded(right=length)
        if part.tokens.shape[1] != length:
            raise ValueError(f"row {number} has {length} tokens, and its record {part.tokens.shape[1]}; cut both alike")
        parts.append(part.map(lambda tensor: tensor[0]).tensors())
    return RecordTensors.from_tensors({name: torch.cat([part[name] for part in parts])[None] for name in parts[0]})
