"""The policy's part in a training step; its twin is ``critic_update.py``."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ngrpo.algo.moments import Reduce
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.packing import PackedBatch
from ngrpo.modeling.policy import ScoringModel, TokenScores
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.learned_gradients import LearnedGradients
from ngrpo.training.nonfinite_guard import Admits, always
from ngrpo.training.optim.grad_norm import clip
from ngrpo.training.optim.loss_scale import LossScale
from ngrpo.training.rounding import ChangedShare
from ngrpo.training.samples import Sample, batch_totals, by_key, loss_inputs
from ngrpo.training.step_metrics import StepMetrics
from ngrpo.training.update_settings import UpdateSettings

_MUST_BE_FINITE = ("policy/loss", "policy/grad_norm")


class PolicyUpdate:
    """The policy's optimiser steps on one rollout batch after the other.

    Args:
        model: the policy.
        settings: temperature and clipping.
        algorithm: makes the loss.
        exploration: the strategy of the rollouts; scores them.
        forward_passes: on this rank.
        loss_scale: of this update.
        data_ranks: number of data ranks.
        schedule: of the learning rate; follows the steps that are made.
        reduce_everywhere: over all processes, those of a tensor group too.

    Attributes:
        ratios: of the steps since `begin`: importance ratios by microbatch; float [N] each, NaN where excluded.
        entropies: of the same steps: entropy before each token, in nats; float32 [N] by the rollout's key.
    """

    def __init__(
        self,
        *,
        model: ScoringModel,
        settings: UpdateSettings,
        algorithm: Algorithm,
        exploration: Exploration,
        forward_passes: ForwardPasses,
        loss_scale: LossScale,
        data_ranks: int,
        schedule: LRScheduler,
        reduce_everywhere: Reduce,
    ) -> None:
        self.model = model
        self.settings = settings
        self.algorithm = algorithm
        self.exploration = exploration
        self.forward_passes = forward_passes
        self.loss_scale = loss_scale
        self.data_ranks = data_ranks
        self.schedule = schedule
        self.reduce_everywhere = reduce_everywhere
        self.ratios: list[Tensor] = []
        self.entropies: dict[int, Tensor] = {}
        self._learned_gradients = LearnedGradients(model.learned, exploration)

    def begin(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Starts a rollout batch; there is nothing to log of the policy before its steps."""
        self.ratios, self.entropies = [], {}
        self.loss_scale.begin()
        return {}

    def step(
        self,
        samples: Sequence[Sample],
        optimizer: Optimizer,
        backward: Callable[[Tensor], None],
        admits: Admits = always,
    ) -> dict[str, Tensor]:
        """Makes one optimiser step on this rank's part of a minibatch; returns its metrics.

        Args:
            samples: this rank's part.
            optimizer: of the policy.
            backward: adds a loss's gradient.
            admits: says whether to make the step, from numbers that should be finite.
        """
        rollouts = [sample.rollout for sample in samples]
        metrics = self.forward_passes.within_memory(
            lambda: self.accumulate(samples, self.loss_scale.scaled(backward)), rollouts, optimizer.zero_grad
        )
        # Now, while the device is busy: whether the step is made is known only when it has nothing more to do.
        watch = ChangedShare(p for p in self.model.parameters() if p.requires_grad)
        self.loss_scale.unscale(self.model.parameters())
        metrics["policy/grad_norm"] = clip(self.model.parameters(), self.settings.max_grad_norm)
        metrics["policy/learning_rate"] = torch.as_tensor(optimizer.param_groups[0]["lr"]).cpu()
        overflowed = self.loss_scale.overflowed(metrics["policy/loss"], metrics["policy/grad_norm"])
        judged = _MUST_BE_FINITE[:1] if overflowed else _MUST_BE_FINITE
        finite = admits({name: metrics[name] for name in judged}) and not overflowed
        if finite and metrics["policy/sequences"] > 0:  # else momentum alone would move the policy
            self._learned_gradients.look(rollouts, metrics["policy/grad_norm"], self.reduce_everywhere)
            optimizer.step()
            self.schedule.step()
        metrics["policy/changed_share"] = watch.after(self.reduce_everywhere)
        metrics |= self._follow_entropy(
            metrics["policy/entropy"], made=finite and bool(metrics["policy/sequences"] > 0)
        )
        if not finite:
            metrics["policy/sequences"] = torch.tensor(0.0)  # nothing was learned, and NaN must stay out of averages
        optimizer.zero_grad()
        return metrics

    def _follow_entropy(self, entropy: Tensor, made: bool) -> dict[str, Tensor]:
        """Returns the coefficient that the step had, where it follows the entropy, and goes on to the next."""
        adaptive = self.algorithm.adaptive_entropy
        if adaptive is None:
            return {}
        used = torch.tensor(adaptive.weight)
        if made:
            adaptive.update(float(entropy))
        return {"policy/entropy_coef": used}

    def accumulate(self, samples: Sequence[Sample], backward: Callable[[Tensor], None]) -> dict[str, Tensor]:
        """Adds the gradient of the policy's loss, normalised by the counts of the whole minibatch on all ranks.

        FSDP averages gradients over the data ranks, so each one's part of the loss is multiplied by their number.
        """
        totals = batch_totals(samples, self.forward_passes.reduce)
        metrics = StepMetrics(self.forward_passes.device)
        ratios: list[Tensor] = []
        entropies: dict[int, Tensor] = {}
        with self.forward_passes.microbatches(self.model, [s.rollout for s in samples]) as parts:
            for indices in parts:
                chosen = [samples[i] for i in indices]
                batch, scores = self.forward_passes.run(self._forward, [s.rollout for s in chosen])
                output = self.algorithm.loss(loss_inputs(chosen, scores, batch.response_lengths), totals)
                backward(output.loss * self.data_ranks)
                metrics.add(output)
                ratios.append(output.ratios)
                entropies |= by_key(chosen, scores.entropy)
        # Only now: where memory runs out before, the minibatch is repeated.
        self.ratios += ratios
        self.entropies |= entropies
        counts = {"policy/sequences": torch.tensor(float(totals.sequences))}
        return metrics.finish(self.forward_passes.reduce) | counts

    def _forward(self, batch: PackedBatch) -> TokenScores:
        scores: TokenScores = self.model(
            batch, self.settings.temperature, self.exploration, entropy_gradient=self.algorithm.entropy_weight > 0
        )
        return scores
