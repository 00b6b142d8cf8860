"""The session of one `generate` call: its requests and strategy on the device, and the records of what was decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.decide import Steering
from ngrpo.exploration.runtime.empty_record import empty_record, empty_support
from ngrpo.rollout.records.host_memory import DeviceView, HostTensor
from ngrpo.types.distributions import Distributions
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Prefix
from ngrpo.types.support import NO_ID, Support

_memories = count()

_ADDRESSES = 2**32
"""Addresses a session: slot i of session n has address n * 2^32 + i."""


@dataclass(frozen=True)
class SessionSpec:
    """The description of a `generate` call that every worker gets before its first request.

    Attributes:
        strategy: the strategy.
        tables: its tables, on any device.
        parameters: what it has learned, on any device.
        end_ids: token ids that end the reasoning.
        temperature: tau.
        max_new_tokens: most response tokens, T.
        slots: most requests that have a record at once, S.
        plain_requests: some requests may be sampled plainly, see `Request.explore`.
        stop_ids: token ids that end a response.
        progress: finished training iterations, see `StepContext`; int64 [].
        steered: some requests may ask for tokens, see `Request.steered`.
        distributions: record what tokens are drawn from, see `Sampling`.
    """

    strategy: Exploration
    tables: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    end_ids: tuple[int, ...]
    temperature: float
    max_new_tokens: int
    slots: int
    plain_requests: bool = False
    stop_ids: tuple[int, ...] = ()
    progress: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))
    steered: bool = False
    distributions: bool = False


@dataclass(frozen=True)
class Admission:
    """What belongs to one request, and is written to its slot before its first forward.

    Attributes:
        slot: the request's while it runs, and until its record was collected.
        number: another one for each request of the session: a request that comes back after a preemption has its own,
            and the next one in the same slot has another.
        key: the request's.
        prompt_length: P, without the prefix.
        explore: the strategy decides the row; otherwise it is sampled plainly.
        prefix: the response tokens that are given; None for none.
        forced_token: the first token that is made; None for one that is decided.
        likeliest: every token is the likeliest, see `Request`.
    """

    slot: int
    number: int
    key: int
    prompt_length: int
    explore: bool = True
    prefix: Prefix | None = None
    forced_token: int | None = None
    likeliest: bool = False

    @property
    def given(self) -> int:
        """F, the number of response tokens that are given."""
        return 0 if self.prefix is None else len(self.prefix.ids)


class SlotSteering(NamedTuple):
    """The tokens that requests ask for.

    Attributes:
        likeliest: see `Request`; bool [S + 1].
        forced: `NO_ID` where none is; int64 [S + 1].
        first: response index of the first token that is made; int64 [S + 1].
    """

    likeliest: Tensor
    forced: Tensor
    first: Tensor

    @classmethod
    def none(cls, slots: int, device: torch.device) -> "SlotSteering":
        """Returns that of requests which ask for nothing."""
        return cls(
            torch.zeros(slots, dtype=torch.bool, device=device),
            torch.full((slots,), NO_ID, dtype=torch.int64, device=device),
            torch.zeros(slots, dtype=torch.int64, device=device),
        )

    def write(self, slots: Tensor, admissions: Sequence[Admission]) -> None:
        """Writes what requests ask for to their slots."""
        rows = [(int(a.likeliest), NO_ID if a.forced_token is None else a.forced_token, a.given) for a in admissions]
        likeliest, forced, first = to_device(torch.tensor(rows), slots.device).unbind(1)
        self.likeliest[slots], self.forced[slots], self.first[slots] = likeliest.bool(), forced, first

    def at(self, slots: Tensor, index: Tensor) -> Steering:
        """Returns what the rows of ``slots`` are asked for at a response index, int64 [R] each."""
        return Steering(self.likeliest[slots], torch.where(index == self.first[slots], self.forced[slots], NO_ID))


class SessionInputs(NamedTuple):
    """The inputs of the session's decisions, on the device; S + 1 slots, the last one scratch.

    Attributes:
        first_address: address of slot 0; int64 [].
        keys: int64 [S + 1].
        prompt_lengths: int64 [S + 1].
        explore: bool [S + 1]; None when all rows are the strategy's.
        end_ids: int64 [E].
        tables: the strategy's.
        parameters: what it has learned.
        embedding: the whole table [V, d], or none of its rows.
        progress: finished training iterations; int64 [].
        steering: None when no request asks for tokens.
    """

    first_address: Tensor
    keys: Tensor
    prompt_lengths: Tensor
    explore: Tensor | None
    end_ids: Tensor
    tables: dict[str, Tensor]
    parameters: dict[str, Tensor]
    embedding: Tensor
    progress: Tensor
    steering: SlotSteering | None = None


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
        support: see `Step`; int32 [S + 1, T, C]; None for a strategy that has none.
        distributions: what the tokens were drawn from; [S + 1, T, ...]. None where it is not recorded.
    """

    tokens: Tensor
    log_probs: Tensor
    mixed: Tensor
    record: Record
    state: Tensor | None
    end_at: Tensor
    support: Tensor | None
    distributions: Distributions | None

    @classmethod
    def empty(
        cls,
        slots: int,
        budget: int,
        strategy: Exploration,
        device: torch.device,
        vectors: Tensor | None,
        distributions: bool = False,
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
            support=empty_support(strategy, shape, device),
            distributions=Distributions.empty(shape, device) if distributions else None,
        )


class CollectedRecords(NamedTuple):
    """The records of N finished requests on the CPU.

    Attributes:
        tokens: int32 [N, T], T the longest response; meaningless beyond a request's own.
        log_probs: float32 [N, T].
        mixed: False beyond a request's response; bool [N, T].
        record: of the M mixed positions, request by request and in ascending order; [M, ...].
        supports: of each request's response; None for a strategy that has none.
        distributions: [N, T, ...]; None where they are not recorded.
        failure: traceback of the strategy's own code, after which nothing was recorded; None if it raised nothing.
        wasted: tokens that were computed for rows that had ended, whichever session's, and were not told before.
    """

    tokens: Tensor
    log_probs: Tensor
    mixed: Tensor
    record: Record
    supports: list[Support] | None = None
    distributions: Distributions | None = None
    failure: str | None = None
    wasted: int = 0


class Session:
    """One `generate` call inside a worker. Slot S is scratch, for what must not be recorded.

    Args:
        spec: what to run.
        embedding: the whole served table [V, d], or none of its rows.
        device: the worker's device.
        device_view: makes the device's view of host memory, where a dense strategy's vectors lie; None on a CPU.
        number: another one for each session of an engine; says which addresses are the session's.

    Attributes:
        memory: another one for each session whose tensors lie elsewhere.
    """

    def __init__(
        self,
        spec: SessionSpec,
        embedding: Tensor,
        device: torch.device,
        device_view: DeviceView | None = None,
        number: int = 0,
    ) -> None:
        self.spec = spec
        self.memory = next(_memories)
        self.scratch = spec.slots
        self.first_address = number * _ADDRESSES
        slots, budget = self.scratch + 1, spec.max_new_tokens
        self.inputs = SessionInputs(
            first_address=torch.tensor(self.first_address, device=device),
            keys=torch.zeros(slots, dtype=torch.int64, device=device),
            prompt_lengths=torch.zeros(slots, dtype=torch.int64, device=device),
            explore=torch.ones(slots, dtype=torch.bool, device=device) if spec.plain_requests else None,
            end_ids=torch.tensor(spec.end_ids, dtype=torch.int64, device=device),
            tables={name: table.to(device) for name, table in spec.tables.items()},
            parameters={name: value.to(device) for name, value in spec.parameters.items()},
            embedding=embedding,
            progress=spec.progress.to(device),
            steering=SlotSteering.none(slots, device) if spec.steered else None,
        )
        self.stop_ids = torch.tensor(spec.stop_ids, dtype=torch.int64, device=device)
        self.vectors: HostTensor | None = None
        if spec.strategy.dense:
            self.vectors = HostTensor((slots, budget, embedding.shape[-1]), embedding.dtype, device_view)
        on_device = None if self.vectors is None else self.vectors.on_device
        self.records = SessionRecords.empty(slots, budget, spec.strategy, device, on_device, spec.distributions)
        self._admitted = [-1] * spec.slots
        self._assigned: list[Admission] = []

    def renew(self, spec: SessionSpec, embedding: Tensor, number: int) -> bool:
        """Becomes the session of another call in the same memory, so that CUDA graphs which read it stay valid.

        Returns:
            False, and nothing was done, for a call whose session needs other memory, or is computed otherwise.
        """
        if self.vectors is not None or not self._serves(spec, embedding):
            return False
        self.spec = spec
        self.first_address = number * _ADDRESSES
        inputs, records = self.inputs, self.records
        inputs.first_address.fill_(self.first_address)
        inputs.progress.copy_(spec.progress)
        for own, given in ((inputs.tables, spec.tables), (inputs.parameters, spec.parameters)):
            for name, tensor in given.items():
                own[name].copy_(tensor)
        if inputs.explore is not None:
            inputs.explore.fill_(True)
        for written in (inputs.keys, inputs.prompt_lengths, *records[:3], *records.record, records.state):
            if written is not None:
                written.zero_()
        records.end_at.fill_(spec.max_new_tokens)
        if records.support is not None:
            records.support.fill_(NO_ID)
        if records.distributions is not None:
            records.distributions.clear()
        self._admitted = [-1] * spec.slots
        self._assigned = []
        return True

    def _serves(self, spec: SessionSpec, embedding: Tensor) -> bool:
        """Says whether another call differs from this one in the values of tensors alone."""
        own, inputs = self.spec, self.inputs
        same_table = embedding.shape == inputs.embedding.shape and embedding.data_ptr() == inputs.embedding.data_ptr()
        named = ((inputs.tables, spec.tables), (inputs.parameters, spec.parameters))
        return (
            same_table
            and type(spec.strategy) is type(own.strategy)
            and all(getattr(spec, name) == getattr(own, name) for name in _OF_THE_COMPUTATION)
            and all(_layouts(mine) == _layouts(given) for mine, given in named)
        )

    def assign(self, admission: Admission) -> int:
        """Notes what belongs to a request, unless its slot has it already; returns the slot's address."""
        if self._admitted[admission.slot] != admission.number:
            self._admitted[admission.slot] = admission.number
            self._assigned.append(admission)
        return self.first_address + admission.slot

    def write_assigned(self) -> None:
        """Sends what `assign` noted to the device, in one copy; must come before the requests' first forward."""
        if not self._assigned:
            return
        assigned, self._assigned = self._assigned, []
        rows = [(a.slot, a.key, a.prompt_length, int(a.explore), self._end_of_prefix(a)) for a in assigned]
        slots, keys, prompt_lengths, explore, end_at = to_device(torch.tensor(rows), self.records.mixed.device).unbind(
            1
        )
        self.inputs.keys[slots] = keys
        self.inputs.prompt_lengths[slots] = prompt_lengths
        if self.inputs.explore is not None:
            self.inputs.explore[slots] = explore.bool()
        self.records.end_at[slots] = end_at
        if self.inputs.steering is not None:
            self.inputs.steering.write(slots, assigned)
        for admission in assigned:
            if admission.prefix is not None:
                self._write_prefix(admission, admission.prefix)

    def _end_of_prefix(self, admission: Admission) -> int:
        """Returns the index of the first end token among the given ones, T if there is none."""
        ids = () if admission.prefix is None else admission.prefix.ids
        ends = (index for index, token in enumerate(ids) if token in self.spec.end_ids)
        return next(ends, self.spec.max_new_tokens)

    def _write_prefix(self, admission: Admission, prefix: Prefix) -> None:
        """Fills the first F entries of a slot as if the given tokens had been chosen here."""
        records, slot, given = self.records, admission.slot, len(prefix.ids)
        device = records.mixed.device
        records.tokens[slot, :given] = to_device(torch.tensor(prefix.ids, dtype=torch.int32), device)
        records.log_probs[slot, :given] = 0
        records.mixed[slot, :given] = False
        if records.state is not None:
            records.state[slot, :given] = 0
        if records.support is not None:
            records.support[slot, :given] = NO_ID
        if records.distributions is not None:
            records.distributions.clear((slot, slice(0, given)))
        if prefix.mixture is not None and len(prefix.mixture.positions):
            index = to_device(prefix.mixture.positions - admission.prompt_length, device)
            at = (torch.full_like(index, slot), index)
            records.mixed[at] = True
            records.record.put(at, prefix.mixture.record.map(lambda channel: to_device(channel, device)))

    def collect(self, slots: Sequence[int], lengths: Sequence[int]) -> CollectedRecords:
        """Returns the records of finished requests, whose slots may then be assigned anew.

        Args:
            slots: N of them.
            lengths: their response tokens, those of a prefix included; what was recorded beyond them is left out.
        """
        records, longest = self.records, max(lengths)
        rows = torch.tensor(slots)
        rows_device = rows.to(records.mixed.device)
        responses = torch.arange(longest) < torch.tensor(lengths)[:, None]
        mixed = records.mixed[rows_device, :longest].cpu() & responses
        request, index = mixed.nonzero(as_tuple=True)
        at = (rows[request], index)
        vectors = None if self.vectors is None else self.vectors.on_host[at]
        at_device = tuple(part.to(records.mixed.device) for part in at)
        rest = records.record._replace(vector=None).map(lambda channel: channel[at_device].cpu())
        return CollectedRecords(
            records.tokens[rows_device, :longest].cpu(),
            records.log_probs[rows_device, :longest].cpu(),
            mixed,
            rest._replace(vector=vectors),
            self._supports(slots, lengths),
            records.distributions and records.distributions.map(lambda channel: channel[rows_device, :longest].cpu()),
        )

    def _supports(self, slots: Sequence[int], lengths: Sequence[int]) -> list[Support] | None:
        """Returns them request by request: of all at once the places would take many times what is in them."""
        support = self.records.support
        if support is None:
            return None
        return [Support.of(support[slot, :length]) for slot, length in zip(slots, lengths, strict=True)]


_OF_THE_COMPUTATION = (
    "strategy", "end_ids", "temperature", "max_new_tokens", "slots", "plain_requests", "stop_ids", "steered",
    "distributions",
)  # fmt: skip
"""What of a `SessionSpec` is no tensor."""


def _layouts(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copies a host tensor to a device without waiting for what runs there."""
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)
