"""What one `generate` call needs inside vLLM's workers, and the records it leaves there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration


@dataclass(frozen=True)
class SessionSpec:
    """Sent to every worker before a `generate` call; request number i of the call owns slot i.

    Attributes:
        strategy: the strategy.
        tables: its tables, on any device.
        end_ids: token ids that end the reasoning.
        temperature: tau.
        max_new_tokens: most response tokens.
        keys: request keys; int64 [S].
        prompt_lengths: int64 [S].
        explore: rows that the strategy decides; the others are sampled plainly; bool [S].
    """

    strategy: Exploration
    tables: Mapping[str, Tensor]
    end_ids: tuple[int, ...]
    temperature: float
    max_new_tokens: int
    keys: Tensor
    prompt_lengths: Tensor
    explore: Tensor


class SessionInputs(NamedTuple):
    """What the session's rows are decided from, on the device; S + 1 slots, the last one scratch.

    Attributes:
        keys: int64 [S + 1].
        prompt_lengths: int64 [S + 1].
        explore: bool [S + 1]; None when all rows are the strategy's.
        end_ids: int64 [E].
        tables: the strategy's.
    """

    keys: Tensor
    prompt_lengths: Tensor
    explore: Tensor | None
    end_ids: Tensor
    tables: dict[str, Tensor]


class Records(NamedTuple):
    """What was decided, indexed by (slot, response position): the only source of truth about the rollouts.

    A row is written when its token is chosen and read when the token is fed, which may be again and again: decode,
    chunked prefill and recomputation after a preemption look the same.

    Attributes:
        tokens: int32 [S + 1, T].
        log_probs: float32 [S + 1, T].
        mixed: bool [S + 1, T].
        ids: int32 [S + 1, T, K].
        weights: float32 [S + 1, T, K].
        end_at: position of the first end token, T while there is none; int64 [S + 1].
    """

    tokens: Tensor
    log_probs: Tensor
    mixed: Tensor
    ids: Tensor
    weights: Tensor
    end_at: Tensor

    @classmethod
    def empty(cls, slots: int, budget: int, width: int, device: torch.device) -> "Records":
        """Returns records of ``slots`` slots, scratch included."""
        return cls(
            tokens=torch.zeros(slots, budget, dtype=torch.int32, device=device),
            log_probs=torch.zeros(slots, budget, device=device),
            mixed=torch.zeros(slots, budget, dtype=torch.bool, device=device),
            ids=torch.zeros(slots, budget, width, dtype=torch.int32, device=device),
            weights=torch.zeros(slots, budget, width, device=device),
            end_at=torch.full((slots,), budget, dtype=torch.int64, device=device),
        )


class Session:
    """One `generate` call inside a worker. Slot S is scratch, for what must not be recorded.

    Args:
        spec: what to run.
        device: the worker's device.
    """

    def __init__(self, spec: SessionSpec, device: torch.device) -> None:
        self.spec = spec
        self.scratch = len(spec.keys)
        self.inputs = SessionInputs(
            keys=_with_scratch(spec.keys, 0).to(device),
            prompt_lengths=_with_scratch(spec.prompt_lengths, 0).to(device),
            explore=None if bool(spec.explore.all()) else _with_scratch(spec.explore, False).to(device),
            end_ids=torch.tensor(spec.end_ids, dtype=torch.int64, device=device),
            tables={name: table.to(device) for name, table in spec.tables.items()},
        )
        self.records = Records.empty(self.scratch + 1, spec.max_new_tokens, spec.strategy.width, device)

    def collect(self) -> tuple[Tensor, ...]:
        """Returns tokens, log-probs, mixed, ids and weights of all slots on the CPU."""
        return tuple(record[: self.scratch].cpu() for record in self.records[:-1])


def _with_scratch(values: Tensor, fill: int | bool) -> Tensor:
    return torch.cat([values, torch.tensor([fill], dtype=values.dtype)])
