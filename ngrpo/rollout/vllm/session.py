"""What one `generate` call needs inside vLLM's workers, and the records it leaves there."""

from collections.abc import Mapping
from dataclasses import dataclass

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


class Session:
    """Device-resident records, indexed by (slot, response position): the only source of truth about the rollouts.

    A row is written when its token is chosen and read when the token is fed, which may be again and again: decode,
    chunked prefill and recomputation after a preemption look the same. Slot S is scratch, for what must not be
    recorded.

    Args:
        spec: what to run.
        device: the worker's device.
    """

    def __init__(self, spec: SessionSpec, device: torch.device) -> None:
        slots, budget, width = len(spec.keys), spec.max_new_tokens, spec.strategy.width
        self.spec = spec
        self.scratch = slots
        self.tables = {name: table.to(device) for name, table in spec.tables.items()}
        self.end_ids = torch.tensor(spec.end_ids, dtype=torch.int64, device=device)
        self.keys = _with_scratch(spec.keys, 0).to(device)
        self.prompt_lengths = _with_scratch(spec.prompt_lengths, 0).to(device)
        self.explore = None if bool(spec.explore.all()) else _with_scratch(spec.explore, False).to(device)
        self.end_at = torch.full((slots + 1,), budget, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(slots + 1, budget, dtype=torch.int32, device=device)
        self.log_probs = torch.zeros(slots + 1, budget, device=device)
        self.mixed = torch.zeros(slots + 1, budget, dtype=torch.bool, device=device)
        self.ids = torch.zeros(slots + 1, budget, width, dtype=torch.int32, device=device)
        self.weights = torch.zeros(slots + 1, budget, width, device=device)

    def collect(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Returns tokens, log-probs, mixed, ids and weights of all slots on the CPU."""
        records = (self.tokens, self.log_probs, self.mixed, self.ids, self.weights)
        return tuple(record[: self.scratch].cpu() for record in records)  # type: ignore[return-value]


def _with_scratch(values: Tensor, fill: int | bool) -> Tensor:
    return torch.cat([values, torch.tensor([fill], dtype=values.dtype)])
