"""Forward passes that score a rollout batch before its optimiser steps: old policy, reference, critic."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.lora import adapter_off
from ngrpo.modeling.overflow import HEAD, first_overflow
from ngrpo.modeling.packing import PackedBatch
from ngrpo.modeling.policy import ScoringModel, TokenScores
from ngrpo.training.batching import contiguous
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.models import Models
from ngrpo.training.optim.offload import visiting
from ngrpo.training.samples import PrecomputedLogProbs
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.rollouts import Rollout


class Scorer:
    """Scores rollouts with the models of a run (each method is a collective when they are sharded).

    Results are float32 on the CPU, a tensor a rollout, in the order of the rollouts.

    Args:
        models: policy, reference and critic.
        settings: temperature, and where the reference is kept.
        algorithm: says what its loss needs.
        exploration: the strategy of the rollouts; scores them.
        forward_passes: on this rank.
    """

    def __init__(
        self,
        *,
        models: Models,
        settings: UpdateSettings,
        algorithm: Algorithm,
        exploration: Exploration,
        forward_passes: ForwardPasses,
    ) -> None:
        self.models = models
        self.settings = settings
        self.algorithm = algorithm
        self.exploration = exploration
        self.forward_passes = forward_passes

    def precompute(self, rollouts: Sequence[Rollout]) -> PrecomputedLogProbs:
        """Returns what stays as it is during the optimiser steps on these rollouts, as far as the loss needs it.

        Args:
            rollouts: minibatch by minibatch.
        """
        unknown: list[Tensor | None] = [None] * len(rollouts)
        old, entropies = self.old_scores(rollouts)
        return PrecomputedLogProbs(
            old=old,
            reference=self.reference_log_probs(rollouts) if self.algorithm.needs_reference else unknown,
            values=self.values(rollouts) if self.models.critic is not None else unknown,
            entropies=entropies,
        )

    def old_scores(self, rollouts: Sequence[Rollout]) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Returns the policy's log-probs before the first step, and its entropies where tokens are weighed by them.

        [N] each, and log-probs None for what that step scores by itself.

        Its forward pass is made with those same weights. Minibatches after it are scored now, since they find others.

        Args:
            rollouts: minibatch by minibatch.
        """
        if self.algorithm.token_weight.batch_wide:
            scores = [scored.unbind(-1) for scored in self._scores(rollouts)]
            return [log_prob for log_prob, _ in scores], [entropy for _, entropy in scores]
        every = self.algorithm.needs_scoring_pass
        first = 0 if every else len(contiguous(len(rollouts), self.algorithm.optimizer_steps)[0])
        later = rollouts[first:]
        return [*(None,) * first, *(self.log_probs(self.models.policy, later) if later else ())], []

    def _scores(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Returns the policy's log-probs and entropies of the N generated tokens; [N, 2] each."""

        def forward(batch: PackedBatch) -> Tensor:
            scores: TokenScores = self.models.policy(batch, self.settings.temperature, self.exploration)
            return torch.stack((scores.log_prob, scores.entropy), dim=-1)

        return self.forward_passes.by_rollout(self.models.policy, forward, rollouts)

    def log_probs(self, model: ScoringModel, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Returns a model's log-probs of the N generated tokens; [N] each."""

        def forward(batch: PackedBatch) -> Tensor:
            log_prob: Tensor = model(batch, self.settings.temperature, self.exploration).log_prob
            return log_prob

        return self.forward_passes.by_rollout(model, forward, rollouts)

    def reference_log_probs(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Returns the reference's; without a model of its own it is the policy without its adapter."""
        seen = [r.without_mixtures() for r in rollouts] if self.exploration.plain_reference else rollouts
        reference = self.models.reference
        if reference is None:
            with adapter_off(self.models.policy):
                return self.log_probs(self.models.policy, seen)
        waiting = self.settings.offload_reference
        with visiting(reference, self.forward_passes.device) if waiting else nullcontext():
            return self.log_probs(reference, seen)

    def values(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Returns the critic's V of the state before each of N generated tokens and after the last; [N + 1] each."""
        critic = self.models.critic
        assert critic is not None

        def forward(batch: PackedBatch) -> Tensor:
            values: Tensor = critic(batch, self.exploration, last=True)
            return values

        return self.forward_passes.by_rollout(critic, forward, rollouts, further=1)

    def overflow(self, model: ScoringModel, rollouts: Sequence[Rollout]) -> str | None:
        """Returns the name of the module of policy or critic that is the first to overflow; None if nothing does."""
        with first_overflow(model) as found:
            scores = self.values(rollouts) if model is self.models.critic else self.log_probs(model, rollouts)
        named = found() or (None if all(bool(one.isfinite().all()) for one in scores) else HEAD)
        return next(filter(None, gathered_everywhere(named)), None)

    def training_log_probs(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Returns the policy's log-probs as an optimiser step computes them; [N] each."""
        policy = self.models.policy

        def forward(batch: PackedBatch) -> Tensor:
            with torch.enable_grad():  # compiled and recomputed layers are others without
                log_prob: Tensor = policy(batch, self.settings.temperature, self.exploration).log_prob
                return log_prob.detach()

        return self.forward_passes.by_rollout(policy, forward, rollouts)
