"""The records of rollouts as tensors beside ``input_ids``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ngrpo.types.records import Record, Step
from ngrpo.types.rollouts import Rollout

PREFIX = "exploration_"
"""What the names of the tensors start with, in the batch of another program."""

_EMPTY = -1
"""The token of a slot that is not mixed."""

_EXACT = {
    **dict.fromkeys(("tokens", "keys", "positions"), (torch.int64,)),
    "ids": (torch.int32, torch.int64),
    **dict.fromkeys(("weights", "scores", "noise"), (torch.float32,)),
}
"""Dtypes of the channels; a vector's is that of the embedding."""


@dataclass(frozen=True)
class MixedSlots:
    """The mixed slots of a batch, M of them, without the others.

    Attributes:
        slots: where they stand in the flattened batch; int64 [M].
        step: what was decided there, M rows.
        keys: request keys; int64 [M].
        positions: in the rollout, prompt included; int64 [M].
    """

    slots: Tensor
    step: Step
    keys: Tensor
    positions: Tensor


@dataclass(frozen=True)
class RecordTensors:
    """What stood at every slot of a batch of shape [B, T], whatever its padding.

    All tensors have the leading dimensions of ``input_ids``, and go wherever those go: through indexing of rows,
    shuffling, splitting, padding and packing.

    Attributes:
        tokens: the token id at a mixed slot, -1 at others; int64 [B, T].
        keys: the request key of a mixed slot's rollout; int64 [B, T].
        positions: a mixed slot's position in its rollout; int64 [B, T].
        record: what stood there; int32 [B, T, K] ids, float32 [B, T, K] weights, further channels.

    Raises:
        ValueError: what happened to some of the tensors did not happen to the others, or one has lost digits.
    """

    tokens: Tensor
    keys: Tensor
    positions: Tensor
    record: Record

    def __post_init__(self) -> None:
        """Refuses what a batch of another program has made of them, such as a cast to bfloat16."""
        for name, tensor in self.tensors().items():
            if tensor.shape[: self.tokens.dim()] != self.tokens.shape:
                raise ValueError(
                    f"{name} of shape {list(tensor.shape)} stands beside tokens of shape {list(self.tokens.shape)}; do "
                    "to all of them what is done to input_ids"
                )
            exact = _EXACT.get(name.removeprefix(PREFIX))
            if exact is not None and tensor.dtype not in exact:
                raise ValueError(f"{name} is {tensor.dtype}, and records are {exact[0]}; cast none of them")

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], attention_mask: Tensor) -> "RecordTensors":
        """Places the records of rollouts of one strategy.

        Args:
            rollouts: B of them, with 1 or more.
            attention_mask: where the tokens of each, prompt and response, stand in its row, in their order, wherever
                the padding is; [B, T].

        Raises:
            ValueError: a row has room for another number of tokens than its rollout has, or a rollout is mixed at slots
                that are none of its response.
        """
        places = attention_mask.cpu().bool()
        if len(rollouts) != len(places):
            raise ValueError(f"attention_mask has {len(places)} rows for {len(rollouts)} rollouts")
        for row, rollout in enumerate(rollouts):
            if int(places[row].sum()) != rollout.tokens:
                raise ValueError(
                    f"row {row} of attention_mask shows {int(places[row].sum())} tokens, and its rollout has "
                    f"{rollout.tokens}"
                )
            _check_slots(row, rollout)
        counts = torch.tensor([len(r.mixture.positions) for r in rollouts])
        at_row = torch.arange(len(rollouts)).repeat_interleave(counts)
        at_column = torch.cat([places[i].nonzero()[:, 0][r.mixture.positions] for i, r in enumerate(rollouts)])

        def placed(values: Tensor, empty: int = 0) -> Tensor:
            whole = values.new_full((*places.shape, *values.shape[1:]), empty)
            whole[at_row, at_column] = values
            return whole

        tokens = [torch.cat((r.prompt_ids, r.response_ids))[r.mixture.positions] for r in rollouts]
        return cls(
            tokens=placed(torch.cat(tokens), _EMPTY),
            keys=placed(torch.tensor([r.key for r in rollouts]).repeat_interleave(counts)),
            positions=placed(torch.cat([r.mixture.positions for r in rollouts])),
            record=Record.cat([r.mixture.record for r in rollouts]).map(placed),
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> "RecordTensors":
        """Takes the tensors that `tensors` has named out of a batch that may hold others.

        Raises:
            KeyError: they are not there.
        """
        plain = {name: tensors[PREFIX + name] for name in ("tokens", "keys", "positions")}
        return cls(**plain, record=Record._make(tensors.get(PREFIX + name) for name in Record._fields))

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors by name, for the batch of another program: each starts with ``exploration_``."""
        named = {"tokens": self.tokens, "keys": self.keys, "positions": self.positions, **self.record._asdict()}
        return {PREFIX + name: tensor for name, tensor in named.items() if tensor is not None}

    def map(self, change: Callable[[Tensor], Tensor]) -> "RecordTensors":
        """Applies what happens to ``input_ids`` to every tensor; it must keep the leading dimensions two."""
        return RecordTensors(change(self.tokens), change(self.keys), change(self.positions), self.record.map(change))

    def __getitem__(self, rows: slice | Tensor | list[int]) -> "RecordTensors":
        """Returns some rows, in the order given."""
        return self.map(lambda tensor: tensor[rows])

    def __len__(self) -> int:
        """Returns B."""
        return len(self.tokens)

    def to(self, device: torch.device | str) -> "RecordTensors":
        """Returns the records on ``device``."""
        return self.map(lambda tensor: tensor.to(device))

    def padded(self, left: int = 0, right: int = 0) -> "RecordTensors":
        """Returns the records with further, or for negative numbers fewer, slots at the sides."""

        def widened(tensor: Tensor, empty: int = 0) -> Tensor:
            return pad(tensor, (*[0, 0] * (tensor.dim() - 2), left, right), value=empty)

        rest = RecordTensors(self.tokens, self.keys, self.positions, self.record).map(widened)
        return RecordTensors(widened(self.tokens, _EMPTY), rest.keys, rest.positions, rest.record)

    def packed(self, attention_mask: Tensor) -> "RecordTensors":
        """Returns the slots that a mask shows, row after row, as one row; [1, N] of a mask [B, T]."""
        shown = attention_mask.bool().to(self.tokens.device)
        return self.map(lambda tensor: tensor[shown][None])

    @classmethod
    def cat(cls, parts: Sequence["RecordTensors"]) -> "RecordTensors":
        """Joins rows of batches of one strategy and one width."""
        joined = [torch.cat(tensors) for tensors in zip(*((p.tokens, p.keys, p.positions) for p in parts), strict=True)]
        return cls(joined[0], joined[1], joined[2], Record.cat([part.record for part in parts]))

    def mixed(self) -> MixedSlots:
        """Returns the mixed slots alone."""
        slots = (self.tokens.flatten() != _EMPTY).nonzero()[:, 0]
        tokens, keys, positions = (t.flatten()[slots] for t in (self.tokens, self.keys, self.positions))
        record = self.record.map(lambda channel: channel.flatten(0, 1)[slots])
        record = record._replace(ids=record.ids.long())
        return MixedSlots(slots, Step(tokens, torch.ones_like(slots, dtype=torch.bool), *record), keys, positions)


def _check_slots(row: int, rollout: Rollout) -> None:
    """Refuses positions that would index other slots, such as those of who counts from the response's beginning."""
    positions, prompt = rollout.mixture.positions.tolist(), len(rollout.prompt_ids)
    bounds = [prompt - 1, *positions, rollout.tokens]
    if any(low >= high for low, high in zip(bounds, bounds[1:], strict=False)):
        raise ValueError(
            f"the rollout of row {row} is mixed at {positions[:4]}..., and its response has the slots {prompt} to "
            f"{rollout.tokens - 1}; count them from the prompt's beginning, each once and in their order"
        )
