"""The memory that a run takes on each device, part by part and phase by phase of an iteration."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import torch

from ngrpo.planning.engine_memory import EngineMemory
from ngrpo.planning.optimizer_memory import MakeOptimizer, optimizer_memory
from ngrpo.planning.parameters import ModelSize, moment_bytes, weight_bytes
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.update_memory import UpdateMemory, critic_size, critic_update_memory, stored_size, update_memory


class Phase(Enum):
    """A part of an iteration."""

    GENERATE = "generate"
    SCORE = "score"
    UPDATE = "update"
    CRITIC = "critic's update"
    STEP = "optimiser step"
    TRANSFER = "weight transfer"


_EVERY = frozenset(Phase)
_ROLLOUTS = frozenset({Phase.GENERATE, Phase.TRANSFER})
_PASSES = frozenset({Phase.SCORE, Phase.UPDATE})
_POLICY = frozenset({Phase.UPDATE, Phase.STEP})


@dataclass(frozen=True)
class Part:
    """What takes memory on a device.

    Attributes:
        name: for people.
        bytes: while it is there.
        phases: in which it is there.
        exact: it follows from the number of parameters alone.
    """

    name: str
    bytes: int
    phases: frozenset[Phase]
    exact: bool = False


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one device.

    Attributes:
        parts: what takes it; none of 0 bytes.
        numbers: parameters of the whole model.
        trained: of them those that are trained.
        cache_tokens: that the engine's cache has room for.
        device_bytes: that the device has; 0 if that is not known.
    """

    parts: tuple[Part, ...]
    numbers: int
    trained: int
    cache_tokens: int
    device_bytes: int

    def total(self, phase: Phase) -> int:
        """Returns the most bytes in use in a phase."""
        return sum(part.bytes for part in self.parts if phase in part.phases)

    @property
    def phase(self) -> Phase:
        """The one that takes the most."""
        return max(Phase, key=self.total)

    @property
    def peak(self) -> int:
        """Most bytes in use."""
        return self.total(self.phase)

    @property
    def fits(self) -> bool:
        """Whether the device has as much; yes where that is not known."""
        return self.device_bytes == 0 or self.peak <= self.device_bytes

    @property
    def certain(self) -> int:
        """Bytes that an optimiser step finds whatever a pass takes: weights, gradients, moments, reference, critic."""
        return sum(part.bytes for part in self.parts if part.exact and Phase.STEP in part.phases)


def plan_memory(run: RunSettings) -> MemoryPlan:
    """Plans a run's memory from its settings alone; no weights are read."""
    stored = stored_size(run)
    whole = stored if run.tensor_parallel_size == 1 else stored_size(replace(run, tensor_parallel_size=1))
    engine = run.engine.memory(run.config, whole.numbers, run.device_bytes)
    parts = [*_models(run, stored), *_passes(update_memory(run)), *_engine(run, engine)]
    if run.critic_optimizer is not None:
        parts += _critic(run, run.critic_optimizer)
    return MemoryPlan(
        parts=tuple(part for part in parts if part.bytes > 0),
        numbers=whole.numbers,
        trained=sum(size.numbers for size in whole.all if size.trained),
        cache_tokens=engine.cache_tokens,
        device_bytes=run.device_bytes,
    )


def _models(run: RunSettings, stored: ModelSize) -> Iterator[Part]:
    ranks = run.data_ranks
    optimizer = optimizer_memory(run.optimizer, torch.float32 if run.lora else run.dtype)
    yield Part("weights", weight_bytes(stored.all, ranks), _EVERY, exact=True)
    yield Part("moments", moment_bytes(stored.all, ranks, optimizer.moments), _moments_phases(run), exact=True)
    trained = sum(size.shard(ranks) for size in stored.all if size.trained)
    yield Part("optimiser's working memory", round(trained * optimizer.step), frozenset({Phase.STEP}))
    if run.reference:
        itemsize = run.computed_in.itemsize
        phases: frozenset[Phase] = frozenset({Phase.SCORE}) if run.offload_reference else _EVERY
        plain = [size for size in stored.all if not (run.lora and size.trained)]
        yield Part("reference", weight_bytes(plain, ranks, itemsize), phases, exact=True)


def _critic(run: RunSettings, make: MakeOptimizer) -> Iterator[Part]:
    """Its update follows the policy's step, whose gradients are gone then."""
    size, during = critic_size(run), frozenset({Phase.CRITIC})
    memory = critic_update_memory(run, size)
    moments = moment_bytes(size.all, run.data_ranks, optimizer_memory(make, run.dtype).moments)
    yield Part("critic", weight_bytes(size.all, run.data_ranks), _EVERY, exact=True)
    yield Part("critic's moments", moments, _moments_phases(run) | during, exact=True)
    yield Part("critic's gradients", memory.gradients, during)
    yield Part("critic's weights to compute with", memory.computed, during)
    yield Part("critic's activations", memory.activations, during)


def _moments_phases(run: RunSettings) -> frozenset[Phase]:
    """With ``offload_optimizer`` they come back with the first step, and are there in the passes of further ones."""
    if not run.offload_optimizer:
        return _EVERY
    return _POLICY | {Phase.CRITIC} if run.optimizer_steps > 1 else frozenset({Phase.STEP, Phase.CRITIC})


def _passes(update: UpdateMemory) -> Iterator[Part]:
    yield Part("gradients", update.gradients, _POLICY, exact=True)
    yield Part("weights to compute with", update.computed, _PASSES)
    yield Part("logits", update.logits, frozenset({Phase.UPDATE}))
    yield Part("activations", update.activations, frozenset({Phase.UPDATE}))
    yield Part("scoring", update.scoring, frozenset({Phase.SCORE}))


def _engine(run: RunSettings, engine: EngineMemory) -> Iterator[Part]:
    generating = _EVERY if run.engine.concurrent else frozenset({Phase.GENERATE})
    yield Part("engine's weights", engine.weights, generating | {Phase.TRANSFER})
    yield Part("engine's key-value cache", engine.cache, generating)
    yield Part("engine's working memory", engine.working, generating)
    yield Part("engine asleep", engine.asleep, _EVERY - generating - {Phase.TRANSFER})
    yield Part("weights in transfer", engine.transfer, frozenset({Phase.TRANSFER}))
