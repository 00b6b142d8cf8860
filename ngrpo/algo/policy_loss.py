"""An algorithm as a composition of five functions, and the loss that they make together."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.clip import Surrogate
from ngrpo.algo.segments import sequence_index
from ngrpo.errors import SettingError


@dataclass(frozen=True)
class LossInputs:
    """One microbatch, packed: S responses with N response tokens in all.

    A response with advantage NaN is left out: its tokens have weight 0, in the surrogate and in the KL, and it is not
    counted in `BatchTotals` nor in the metrics.

    Attributes:
        log_prob: float [N], under the current policy; the only input that gradient flows through.
        old_log_prob: float [N], under the policy before this rollout batch's first step.
        ref_log_prob: float [N], or None without a reference model.
        advantages: float [S].
        lengths: int64 [S], sum N.
    """

    log_prob: Tensor
    old_log_prob: Tensor
    ref_log_prob: Tensor | None
    advantages: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class LossSums:
    """Sums over tokens, detached scalars; they add up over microbatches and ranks and are divided at the end.

    Attributes:
        tokens: number of response tokens.
        kl: of the chosen KL estimator; 0 without a reference.
        clipped: number of tokens whose policy gradient the clip removed.
        ratio: of the importance ratio.
    """

    tokens: Tensor
    kl: Tensor
    clipped: Tensor
    ratio: Tensor

    def stack(self) -> Tensor:
        """All sums in one tensor [4], for adding and for a single all-reduce; `unstack` is the way back."""
        return torch.stack((self.tokens, self.kl, self.clipped, self.ratio))

    @classmethod
    def unstack(cls, stacked: Tensor) -> "LossSums":
        """The inverse of `stack`."""
        return cls(*stacked.unbind())

    def means(self) -> dict[str, Tensor]:
        """Token means by metric name: ``kl``, ``clip_fraction`` and ``ratio``; 0 where there was no token."""
        tokens = self.tokens.clamp(min=1)
        return {"kl": self.kl / tokens, "clip_fraction": self.clipped / tokens, "ratio": self.ratio / tokens}


@dataclass(frozen=True)
class LossOutput:
    """What a microbatch contributes.

    Attributes:
        loss: scalar, this microbatch's share of the optimiser batch's loss: shares are added, never averaged.
        sums: for metrics.
    """

    loss: Tensor
    sums: LossSums


@dataclass(frozen=True)
class Algorithm:
    """A policy-gradient algorithm: which advantage, ratio level, clip, aggregation and KL.

    Attributes:
        advantage: rewards [P, G] -> advantages [P, G]; see `ngrpo.algo.advantage`.
        ratio: (log_prob, old_log_prob, lengths) -> log ratios [N]; see `ngrpo.algo.ratio`.
        clip: (log_ratio, advantage) -> Surrogate; see `ngrpo.algo.clip`.
        aggregate: (lengths, totals) -> token weights [S]; see `ngrpo.algo.aggregate`.
        kl: (log_prob, ref_log_prob) -> [N]; see `ngrpo.algo.kl`.
        kl_coef: weight of the KL term, aggregated like the surrogate; 0 needs no reference model.
        prompts_per_batch: prompts per rollout batch, over all ranks.
        optimizer_steps: optimiser steps per rollout batch, which is cut into as many minibatches.

    Raises:
        SettingError: a setting is out of range, or the steps do not divide the prompts.
    """

    advantage: Callable[[Tensor], Tensor]
    ratio: Callable[[Tensor, Tensor, Tensor], Tensor]
    clip: Callable[[Tensor, Tensor], Surrogate]
    aggregate: Callable[[Tensor, BatchTotals], Tensor]
    kl: Callable[[Tensor, Tensor], Tensor]
    kl_coef: float = 0.0
    prompts_per_batch: int = 16
    optimizer_steps: int = 1

    def __post_init__(self) -> None:
        if not self.kl_coef >= 0:
            raise SettingError(
                f"algo.kl_coef={self.kl_coef} must not be negative: set it to 0 for no KL term, or above."
            )
        for name in ("prompts_per_batch", "optimizer_steps"):
            if getattr(self, name) < 1:
                raise SettingError(f"algo.{name}={getattr(self, name)} is too small: set it to 1 or more.")
        if self.prompts_per_batch % self.optimizer_steps:
            raise SettingError(
                f"algo.prompts_per_batch={self.prompts_per_batch} cannot be cut into "
                f"algo.optimizer_steps={self.optimizer_steps} equal minibatches: "
                "make the first a multiple of the second."
            )

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model must be kept."""
        return self.kl_coef > 0

    def loss(self, batch: LossInputs, totals: BatchTotals) -> LossOutput:
        """The microbatch's share of ``sum_t weight_t (surrogate_t + kl_coef * kl_t)``.

        Args:
            batch: the microbatch; its dtype (float32 at least) is kept.
            totals: counts over the whole optimiser batch.

        Raises:
            ValueError: ``kl_coef`` is positive and ``batch.ref_log_prob`` is None.
        """
        log_prob, lengths = batch.log_prob, batch.lengths
        index = sequence_index(lengths, log_prob.shape[0])
        kept = (~batch.advantages.isnan()).to(log_prob.dtype)
        log_ratio = self.ratio(log_prob, batch.old_log_prob, lengths)
        surrogate = self.clip(log_ratio, batch.advantages.nan_to_num(0.0)[index])
        kl = self._kl(batch)
        weight = (kept * self.aggregate(lengths.to(log_prob.dtype), totals))[index]
        loss = (weight * (surrogate.loss + self.kl_coef * kl)).sum()
        return LossOutput(loss, _sums(kept[index], log_ratio, surrogate.clipped, kl))

    def _kl(self, batch: LossInputs) -> Tensor:
        if batch.ref_log_prob is not None:
            return self.kl(batch.log_prob, batch.ref_log_prob)
        if self.needs_reference:
            raise ValueError(f"kl_coef={self.kl_coef} needs ref_log_prob, which is None")
        return torch.zeros_like(batch.log_prob)


@torch.no_grad()
def _sums(kept: Tensor, log_ratio: Tensor, clipped: Tensor, kl: Tensor) -> LossSums:
    return LossSums(
        tokens=kept.sum(),
        kl=(kept * kl).sum(),
        clipped=(kept * clipped).sum(),
        ratio=(kept * log_ratio.exp()).sum(),
    )
