"""Torch engines with a fault that a version of another engine might have."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ngrpo.exploration.base import RowContext, Step
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.modeling.attention import AttentionPlan
from ngrpo.rollout.engine import Report
from ngrpo.rollout.torch_engine.batch_state import BatchState
from ngrpo.rollout.torch_engine.burst import StepShape
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.torch_engine.kv_cache import PrefillAttention, SlotCache
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Request, Rollout, Sampling


class _FeedsOtherwise(TorchEngine):
    """Feeds something else than it records."""

    back = 0
    """Positions by which the mixtures come late."""

    def fed(self, record: Record) -> Record:
        """Returns what is fed in the place of a record."""
        return record

    def _decode(self, batch: BatchState, cache: SlotCache, exploration: BoundExploration, shape: StepShape) -> None:
        rows, embed = torch.arange(shape.rows), self.lm.get_input_embeddings()
        newest = batch.emitted[: shape.rows] - 1
        index = (newest - self.back).clamp(min=0)
        mixed = batch.mixed[rows, index] & (newest >= self.back)
        record = self.fed(batch.records.map(lambda channel: channel[rows, index]))
        step = Step(batch.tokens[rows, index], mixed, *record._replace(ids=record.ids.long()))
        positions = batch.prompt_length[: shape.rows] + index
        context = RowContext(batch.keys[: shape.rows], positions, embed.weight)
        plain = embed(batch.tokens[rows, newest])
        if exploration.strategy.mixes:
            vectors = exploration.strategy.inputs(embed, step, context, exploration.parameters)
            batch.inputs[: shape.rows] = torch.where(mixed[:, None], vectors, plain)
        super()._decode(batch, cache, exploration, shape)


class ShiftedMixtures(_FeedsOtherwise):
    """Each mixture is fed one position late."""

    back = 1


class SwappedWeights(_FeedsOtherwise):
    """Two ids of a mixture are fed with each other's weight."""

    def fed(self, record: Record) -> Record:
        order = [1, 0, *range(2, record.weights.shape[-1])]
        return record._replace(weights=record.weights[..., order])


class NoTemperature(TorchEngine):
    """Draws, mixes and scores from logits that are not divided."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        return super().generate(requests, replace(sampling, temperature=1.0), exploration, report)


class StaleWeights(TorchEngine):
    """Keeps the weights that it has loaded."""

    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        deque(tensors, maxlen=0)


class PlainSampling(TorchEngine):
    """Ignores the strategy."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        plain = [replace(request, explore=False) for request in requests]
        return super().generate(plain, sampling, exploration, report)


class SharedMixtures(TorchEngine):
    """Takes what it computed of a response for what it would compute of a prompt that repeats its text."""

    def start(self, device: torch.device) -> None:
        super().start(device)
        self.made: list[Rollout] = []

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        rollouts = super().generate(requests, sampling, exploration, report)
        self.made += rollouts
        return rollouts

    def _admit(
        self,
        batch: BatchState,
        cache: SlotCache,
        waiting: deque[tuple[int, Request]],
        room: int,
        exploration: BoundExploration,
    ) -> None:
        self.admitted = list(dict.fromkeys(request.prompt_ids for _, request in list(waiting)[:room]))
        self.exploration = exploration
        super()._admit(batch, cache, waiting, room, exploration)

    def _forward(self, inputs: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        if isinstance(plan, PrefillAttention) and self.exploration.strategy.mixes:
            starts = torch.tensor([0, *plan.lengths]).cumsum(0).tolist()
            for start, prompt in zip(starts, self.admitted, strict=False):
                for rollout in self.made:
                    text = [*rollout.prompt_ids.tolist(), *rollout.response_ids.tolist()]
                    if list(prompt[: len(text)]) == text:
                        inputs[0, start + rollout.mixture.positions] = self._vectors(rollout)
        return super()._forward(inputs, positions, plan)

    def _vectors(self, rollout: Rollout) -> Tensor:
        at, embed = rollout.mixture.positions, self.lm.get_input_embeddings()
        record = rollout.mixture.record
        tokens = torch.cat([rollout.prompt_ids, rollout.response_ids])[at]
        step = Step(tokens, torch.ones_like(at, dtype=torch.bool), *record._replace(ids=record.ids.long()))
        context = RowContext(torch.full_like(at, rollout.key), at, embed.weight)
        return self.exploration.strategy.inputs(embed, step, context, self.exploration.parameters)


BROKEN = (ShiftedMixtures, SwappedWeights, NoTemperature, StaleWeights, SharedMixtures, PlainSampling)
