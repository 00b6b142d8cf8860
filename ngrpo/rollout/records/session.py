"""The session of one `generate` call: its requests and strategy on the device, and the records of what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.empty_record import empty_record
from ngrpo.rollout.records.host_memory import DeviceView, HostTensor
from ngrpo.types.records import Record


@dataclass(frozen=True)
class SessionSpec:
    """The description of a `generate` call that every worker gets before it; request number i owns slot i.

    Attributes:
        strategy: the strategy.
        tables: its tables, on any device.
        parameters: what it has learned, on any device.
        end_ids: token ids that end the reasoning.
        temperature: tau.
        max_new_tokens: most response tokens.
        keys: request keys; int64 [S].
        prompt_lengths: int64 [S].
        explore: rows that the strategy decides; the others are sampled plainly; bool [S].
        stop_ids: token ids that end a response.
        progress: finished training iterations, see `StepContext`; int64 [].
    """

    strategy: Exploration
    tables: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    end_ids: tuple[int, ...]
    temperature: float
    max_new_tokens: int
    keys: Tensor
    prompt_lengths: Tensor
    explore: Tensor
    stop_ids: tuple[int, ...] = ()
    progress: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))


class SessionInputs(NamedTuple):
    """The inputs of the session's decisions, on the device; S + 1 slots, the last one scratch.

    Attributes:
        keys: int64 [S + 1].
        prompt_lengths: int64 [S + 1].
        explore: bool [S + 1]; None when all rows are the strategy's.
        end_ids: int64 [E].
        tables: the strategy's.
        parameters: what it has learned.
        embedding: the whole table [V, d], or none of its rows.
        progress: finished training iterations; int64 [].
    """

    keys: Tensor
    prompt_lengths: Tensor
    explore: Tensor | None
    end_ids: Tensor
    tables: dict[str, Tensor]
    parameters: dict[str, Tensor]
    embedding: Tensor
    progress: Tensor


class SessionRecords(NamedTuple):
    """All decisions, indexed by (slot, response index): the only source of truth about the rollouts.

    An entry is written when its token is chosen and read when the token is fed, which may happen repeatedly: decode,
    chunked prefill and recomputation after a preemption look the same.

    Attributes:
        tokens: int32 [S + 1, T].
        log_probs: float32 [S + 1, T].
        mixed: bool [S + 1, T].
        record: see `Record`; [S + 1, T, ...].
        state: int32 [S + 1, T]; None for a strategy that has none.
        end_at: response index of the first end token, T while there is none; int64 [S + 1].
    """

    tokens: Tensor
    log_probs: Tensor
    mixed: Tensor
    record: Record
    state: Tensor | None
    end_at: Tensor

    @classmethod
    def empty(
        cls, slots: int, budget: int, strategy: Exploration, device: torch.device, vectors: Tensor | None
    ) -> "SessionRecords":
        """Returns records of ``slots`` slots, scratch included; ``vectors`` is room for those of a dense strategy."""
        shape = (slots, budget)
        return cls(
            tokens=torch.zeros(shape, dtype=torch.int32, device=device),
            log_probs=torch.zeros(shape, device=device),
            mixed=torch.zeros(shape, dtype=torch.bool, device=device),
            record=empty_record(strategy, shape, device, vectors),
            state=torch.zeros(shape, dtype=torch.int32, device=device) if strategy.stateful else None,
            end_at=torch.full((slots,), budget, dtype=torch.int64, device=device),
        )


class CollectedRecords(NamedTuple):
    """The records of a session on the CPU.

    Attributes:
        tokens: int32 [S, T].
        log_probs: float32 [S, T].
        mixed: bool [S, T].
        record: of the M mixed positions, slot by slot and in ascending order; [M, ...].
        failure: traceback of the strategy's own code, after which nothing was recorded; None if it raised nothing.
    """

    tokens: Tensor
    log_probs: Tensor
    mixed: Tensor
    record: Record
    failure: str | None = None


class Session:
    """One `generate` call inside a worker. Slot S is scratch, for what must not be recorded.

    Args:
        spec: what to run.
        embedding: the whole served table [V, d], or none of its rows.
        device: the worker's device.
        device_view: makes the device's view of host memory, where a dense strategy's vectors lie; None on a CPU.
    """

    def __init__(
        self, spec: SessionSpec, embedding: Tensor, device: torch.device, device_view: DeviceView | None = None
    ) -> None:
        self.spec = spec
        self.scratch = len(spec.keys)
        self.inputs = SessionInputs(
            keys=_with_scratch(spec.keys, 0).to(device),
            prompt_lengths=_with_scratch(spec.prompt_lengths, 0).to(device),
            explore=None if bool(spec.explore.all()) else _with_scratch(spec.explore, False).to(device),
            end_ids=torch.tensor(spec.end_ids, dtype=torch.int64, device=device),
            tables={name: table.to(device) for name, table in spec.tables.items()},
            parameters={name: value.to(device) for name, value in spec.parameters.items()},
            embedding=embedding,
            progress=spec.progress.to(device),
        )
        slots, budget = self.scratch + 1, spec.max_new_tokens
        self.vectors: HostTensor | None = None
        if spec.strategy.dense:
            self.vectors = HostTensor((slots, budget, embedding.shape[-1]), embedding.dtype, device_view)
        on_device = None if self.vectors is None else self.vectors.on_device
        self.records = SessionRecords.empty(slots, budget, spec.strategy, device, on_device)

    def collect(self) -> CollectedRecords:
        """Returns the records of all slots."""
        records = self.records
        mixed = records.mixed[: self.scratch].cpu()
        at = mixed.nonzero(as_tuple=True)
        vectors = None if self.vectors is None else self.vectors.on_host[at]
        at_device = tuple(index.to(records.mixed.device) for index in at)
        rest = records.record._replace(vector=None).map(lambda channel: channel[at_device].cpu())
        return CollectedRecords(
            records.tokens[: self.scratch].cpu(),
            records.log_probs[: self.scratch].cpu(),
            mixed,
            rest._replace(vector=vectors),
        )


def _with_scratch(values: Tensor, fill: int | bool) -> Tensor:
    return torch.cat([values, torch.tensor([fill], dtype=values.dtype)])
