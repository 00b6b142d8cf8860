"""The LightningModule: policy and reference, and one rollout batch's optimiser steps."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.batching import contiguous, microbatches
from ngrpo.data.types import PromptBatch
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.modeling.policy import ScoringModel, TokenScores
from ngrpo.modeling.sharding import full, named_learned, named_weights, shard
from ngrpo.rollout.experience import Experience
from ngrpo.rollout.types import Rollout
from ngrpo.samples import Sample, loss_inputs, scored_batch
from ngrpo.step_metrics import StepMetrics, average

_PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class UpdateSettings:
    """How an optimiser step is made.

    Attributes:
        temperature: tau of the rollouts; the log-probs are those at tau.
        microbatch_tokens: most tokens (prompts included) in one forward pass.
        max_grad_norm: gradient norms above are scaled down to it.
        precision: "32-true" computes in the dtype of the parameters; "bf16-mixed" computes in bfloat16 and keeps
            parameters, gradients and optimiser in theirs. At a learning rate of 1e-6 parameters must be float32:
            bfloat16 ones round most updates away.
    """

    temperature: float = 1.0
    microbatch_tokens: int = 8192
    max_grad_norm: float = 1.0
    precision: str = "32-true"

    def __post_init__(self) -> None:
        for name in ("microbatch_tokens", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise SettingError(f"trainer.{name}={getattr(self, name)} must be positive; raise it.")
        if self.precision not in _PRECISIONS:
            raise SettingError(
                f"trainer.precision={self.precision} is not known; choose {' or '.join(_PRECISIONS)} (model.dtype "
                "sets the dtype of the parameters)."
            )


class PolicyOptimization(LightningModule):
    """Policy-gradient training on the rollouts that a batch carries.

    One batch is one iteration: ``algorithm.optimizer_steps`` optimiser steps, each on an equal share of the
    prompts, each accumulated over microbatches. Manual optimisation, since Lightning's automatic one makes one
    step a batch. Runs on one device and, sharded, under ModelParallelStrategy.

    Args:
        source: where policy and reference are loaded from.
        algorithm: advantage, credit, ratio, clip, aggregation, KL, correction.
        exploration: the strategy of the rollouts; scores them.
        optimizer: makes the optimiser from the policy's parameters, or from groups of them.
        settings: temperature, microbatches, clipping.
    """

    policy: ScoringModel
    reference: ScoringModel | None

    def __init__(
        self,
        source: ModelSource,
        algorithm: Algorithm,
        exploration: Exploration,
        optimizer: Callable[[Iterable[Any]], Optimizer],
        settings: UpdateSettings,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.source = source
        self.algorithm = algorithm
        self.exploration = exploration
        self.make_optimizer = optimizer
        self.settings = settings
        self._configured = False

    def configure_model(self) -> None:
        """Loads the policy, and the reference if the KL needs it; Lightning calls this more than once."""
        if self._configured:
            return
        self.policy = self._load().train()
        if self.source.gradient_checkpointing:
            self.policy.lm.gradient_checkpointing_enable({"use_reentrant": False})
        # Not a submodule: the frozen reference stays out of checkpoints and of the optimiser.
        reference = self._load().requires_grad_(False).eval() if self.algorithm.needs_reference else None
        object.__setattr__(self, "reference", reference)
        self._configured = True

    def _load(self) -> ScoringModel:
        learned = load_learned(self.source, self.exploration)
        model = ScoringModel(self.source.load(), learned).to(self.device)
        mesh = getattr(self, "device_mesh", None)
        return model if mesh is None else shard(model, mesh["data_parallel"])

    def configure_optimizers(self) -> Optimizer:
        """Makes the optimiser over the policy; learned exploration has learning rates of its own."""
        rates = self.exploration.learning_rates()
        groups = [{"params": [parameter], "lr": rates[name]} for name, parameter in self.policy.learned.items()]
        model = list(self.policy.lm.parameters())
        return self.make_optimizer([{"params": model}, *groups] if groups else model)

    def on_fit_start(self) -> None:
        """Moves the reference, which Lightning does not know of."""
        if self.reference is not None:
            self.reference.to(self.device)

    def transfer_batch_to_device(self, batch: PromptBatch, device: torch.device, dataloader_idx: int) -> PromptBatch:
        """Leaves the batch where it is; microbatches are moved one by one."""
        return batch

    def policy_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the policy's whole weights by transformers name (a collective when sharded)."""
        return named_weights(self.policy)

    def policy_embedding(self) -> Tensor:
        """Returns the policy's whole input embedding table, [V, d] (a collective when sharded)."""
        return full(self.policy.lm.get_input_embeddings().weight.detach())

    def learned_exploration(self) -> dict[str, Tensor]:
        """Returns the strategy's learned parameters, whole (a collective when sharded)."""
        return named_learned(self.policy)

    def training_step(self, batch: PromptBatch, batch_idx: int) -> None:
        """Makes the optimiser steps of one rollout batch and logs their metrics."""
        start = time.perf_counter()
        samples = self._samples(batch.experience)
        scored = time.perf_counter()
        steps = [
            self._optimizer_step([samples[i] for i in part])
            for part in contiguous(len(samples), self.algorithm.optimizer_steps)
        ]
        seconds = {"time/score_s": scored - start, "time/update_s": time.perf_counter() - scored}
        self.log_dict(average(steps) | seconds, batch_size=1)

    def _samples(self, experience: Experience) -> list[Sample]:
        """Scores what stays constant during the steps, old and reference log-probs, and assigns the advantages."""
        rollouts = experience.rollouts
        unknown: list[Tensor | None] = [None] * len(rollouts)
        old = self._score_all(self.policy, rollouts) if self.algorithm.needs_old_log_prob else unknown
        seen = [r.plain() for r in rollouts] if self.exploration.plain_reference else rollouts
        ref = self._score_all(self.reference, seen) if self.reference is not None else unknown
        credited = self.algorithm.assign(scored_batch(experience, old, ref, self._reduce))
        advantages = torch.split(credited.advantages, [r.length for r in rollouts], dim=-1)
        return [Sample(*parts) for parts in zip(rollouts, advantages, old, ref, strict=True)]

    @torch.no_grad()
    def _score_all(self, model: ScoringModel, rollouts: Sequence[Rollout]) -> list[Tensor | None]:
        """Returns the log-probs of each rollout under ``model``, in their order; all are there."""
        out: dict[int, Tensor] = {}
        for indices in self._microbatches(rollouts):
            batch, scores = self._score(model, [rollouts[i] for i in indices])
            out.update(zip(indices, torch.split(scores.log_prob, batch.response_lengths.tolist()), strict=True))
        return [out[i] for i in range(len(rollouts))]

    def _score(self, model: ScoringModel, rollouts: Sequence[Rollout]) -> tuple[PackedBatch, TokenScores]:
        batch = pack(rollouts).to(self.device)
        mixed = self.settings.precision == "bf16-mixed"
        # Not Lightning's plugin: under ModelParallelStrategy it offers no mixed precision.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=mixed):
            return batch, model(
                batch, self.settings.temperature, self.exploration, entropy_gradient=self.algorithm.entropy_coef > 0
            )

    def _microbatches(self, rollouts: Sequence[Rollout]) -> list[list[int]]:
        lengths = [len(r.prompt_ids) + r.length for r in rollouts]
        return microbatches(lengths, self.settings.microbatch_tokens, lambda count: int(self._reduce(count, "max")))

    def _reduce(self, value: Tensor | float, op: str) -> Tensor:
        """Reduces over the ranks."""
        tensor = torch.as_tensor(value, dtype=torch.float64, device=self.device)
        if self.trainer.world_size == 1:
            return tensor
        return self.trainer.strategy.reduce(tensor.clone(), reduce_op=op)

    def _optimizer_step(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Makes one optimiser step on this rank's share of a minibatch; returns its metrics."""
        optimizer = self.optimizers()
        metrics = self.accumulate(samples)
        metrics["policy/grad_norm"] = full(clip_grad_norm_(self.policy.parameters(), self.settings.max_grad_norm))
        if metrics["policy/sequences"] > 0:  # else all are left out, and momentum alone would move the policy
            optimizer.step()
        optimizer.zero_grad()
        return metrics

    def accumulate(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Adds the gradient of a minibatch's loss to the parameters, microbatch by microbatch.

        The loss is normalised by the counts of the whole minibatch on all ranks. FSDP averages gradients over the
        ranks, so each rank's share is multiplied by their number.
        """
        kept = [s.rollout.length for s in samples if not s.left_out]
        totals = BatchTotals(sequences=int(self._reduce(len(kept), "sum")), tokens=int(self._reduce(sum(kept), "sum")))
        metrics = StepMetrics(self.device)
        for indices in self._microbatches([s.rollout for s in samples]):
            chosen = [samples[i] for i in indices]
            batch, scores = self._score(self.policy, [s.rollout for s in chosen])
            output = self.algorithm.loss(loss_inputs(chosen, scores, batch.response_lengths), totals)
            self.manual_backward(output.loss * self.trainer.world_size)
            metrics.add(output)
        return metrics.finish(self._reduce) | {"policy/sequences": torch.tensor(float(totals.sequences))}
