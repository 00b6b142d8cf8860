"""The critic's part in a training step; its twin is ``policy_update.py``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ngrpo.algo.moments import moments
from ngrpo.algo.value_loss import value_loss
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.packing import PackedBatch
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.nonfinite_guard import Admits, always
from ngrpo.training.optim.grad_norm import clip
from ngrpo.training.optim.loss_scale import LossScale
from ngrpo.training.samples import Sample

_MUST_BE_FINITE = ("critic/loss", "critic/grad_norm")


@dataclass(frozen=True)
class CriticSettings:
    """Settings of the critic's training (``critic`` in the configuration); one step for each of the policy's.

    Attributes:
        optimizer: makes its optimiser from groups of its parameters.
        clip: c of `ngrpo.algo.value_loss.value_loss`; None does not clip.
        max_grad_norm: gradient norms above are scaled down to it.
    """

    optimizer: Callable[[Iterable[Any]], Optimizer]
    clip: float | None = 0.2
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("clip", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingError(f"critic.{name}={value} must be positive; raise it.")


class CriticUpdate:
    """The critic's optimiser steps on one rollout batch after the other.

    Args:
        model: the critic.
        settings: clipping.
        exploration: the strategy of the rollouts; rebuilds their inputs.
        forward_passes: on this rank.
        loss_scale: of this update.
        data_ranks: number of data ranks.
    """

    def __init__(
        self,
        *,
        model: ValueModel,
        settings: CriticSettings,
        exploration: Exploration,
        forward_passes: ForwardPasses,
        loss_scale: LossScale,
        data_ranks: int,
    ) -> None:
        self.model = model
        self.settings = settings
        self.exploration = exploration
        self.forward_passes = forward_passes
        self.loss_scale = loss_scale
        self.data_ranks = data_ranks

    def begin(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Starts a rollout batch; returns what the critic knew of it before its steps, over all ranks.

        ``critic/explained_variance`` is ``1 - Var(return - V) / Var(return)`` over tokens, not logged where all returns
        are equal.
        """
        self.loss_scale.begin()
        returns = _packed_returns(samples)
        values = _packed_old_values(samples).to(returns)
        reduce = self.forward_passes.reduce
        found = moments(returns, reduce)
        metrics = {
            "critic/return_mean": found.mean,
            "critic/value_mean": moments(values.where(~returns.isnan(), returns), reduce).mean,
        }
        if not found.equal:
            unexplained = moments(returns - values, reduce).variance
            metrics["critic/explained_variance"] = 1.0 - unexplained / found.variance
        return metrics

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
            optimizer: of the critic.
            backward: adds a loss's gradient.
            admits: says whether to make the step, from numbers that should be finite.
        """
        rollouts = [sample.rollout for sample in samples]
        metrics = self.forward_passes.within_memory(
            lambda: self.accumulate(samples, self.loss_scale.scaled(backward)), rollouts, optimizer.zero_grad
        )
        self.loss_scale.unscale(self.model.parameters())
        metrics["critic/grad_norm"] = clip(self.model.parameters(), self.settings.max_grad_norm)
        overflowed = self.loss_scale.overflowed(metrics["critic/loss"], metrics["critic/grad_norm"])
        judged = _MUST_BE_FINITE[:1] if overflowed else _MUST_BE_FINITE
        finite = admits({name: metrics[name] for name in judged}) and not overflowed
        if finite and metrics["critic/tokens"] > 0:  # else momentum and weight decay alone would move the critic
            optimizer.step()
        optimizer.zero_grad()
        return metrics

    def accumulate(self, samples: Sequence[Sample], backward: Callable[[Tensor], None]) -> dict[str, Tensor]:
        """Adds the gradient of the value loss, a mean over the tokens of the whole minibatch on all ranks.

        Unscored responses (returns NaN) are excluded; responses that only the policy's loss excludes are not. FSDP
        averages gradients over the data ranks, so each one's part of the loss is multiplied by their number.
        """
        tokens = self._scored_tokens(samples)
        total = tokens.clamp(min=1)
        sums = torch.zeros(2, dtype=torch.float64, device=self.forward_passes.device)
        with self.forward_passes.microbatches(self.model, [s.rollout for s in samples]) as parts:
            for indices in parts:
                chosen = [samples[i] for i in indices]
                _, values = self.forward_passes.run(self._forward, [s.rollout for s in chosen])
                loss, clipped = self._sums(chosen, values)
                backward(loss / total.to(loss.dtype) * self.data_ranks)
                sums += torch.stack((loss.detach().double(), clipped.double()))
        loss, clipped = (self.forward_passes.reduce(sums, "sum") / total).unbind()
        return {"critic/loss": loss, "critic/clip_fraction": clipped, "critic/tokens": tokens}

    def _scored_tokens(self, samples: Sequence[Sample]) -> Tensor:
        scored = sum(s.rollout.generated for s in samples if not bool(_packed_returns([s]).isnan().any()))
        return self.forward_passes.reduce(torch.tensor(float(scored)), "sum")

    def _forward(self, batch: PackedBatch) -> Tensor:
        values: Tensor = self.model(batch, self.exploration)
        return values

    def _sums(self, samples: Sequence[Sample], values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the sums over scored tokens of loss and clipped tokens."""
        returns = _packed_returns(samples).to(values)
        old = _packed_old_values(samples).to(values)
        counted = ~returns.isnan()
        found = value_loss(values, old, returns.nan_to_num(0.0), self.settings.clip)
        return (found.loss * counted).sum(), (found.clipped & counted).sum()


def _packed_returns(samples: Sequence[Sample]) -> Tensor:
    return torch.cat([s.returns for s in samples if s.returns is not None])


def _packed_old_values(samples: Sequence[Sample]) -> Tensor:
    return torch.cat([s.old_value for s in samples if s.old_value is not None])
