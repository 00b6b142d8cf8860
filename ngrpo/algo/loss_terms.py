"""Inputs and outputs of the loss of a microbatch."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ngrpo.algo.token_weight import TokenWeight


@dataclass(frozen=True)
class LossInputs:
    """One microbatch, packed: S responses with N response tokens in all.

    A response with advantage NaN is excluded: its tokens have weight 0, in the surrogate, the KL and the entropy bonus,
    and it is not counted in `BatchTotals` nor in the metrics.

    Attributes:
        log_prob: float [N], under the current policy; gradient flows through it.
        old_log_prob: float [N], under the policy before this rollout batch's first step.
        ref_log_prob: float [N], or None without a reference model.
        rollout_log_prob: float [N], as the engine recorded it.
        entropy: float [N] of the current policy; carries gradient where there is an entropy bonus.
        advantages: float [A, N], see `ngrpo.algo.credit.Credited`; NaN on all tokens of an excluded response.
        lengths: int64 [S], sum N.
        token_weight: of a weighting over the whole optimiser batch, or with tokens that a correction rejects; None
            where every token counts.
        share: of each token that counts in its response, 1/k where k responses have it in common; float [N], None for 1
            throughout. In the loss, in its counts and in the metrics such a token then counts once in all.
    """

    log_prob: Tensor
    old_log_prob: Tensor
    ref_log_prob: Tensor | None
    rollout_log_prob: Tensor
    entropy: Tensor
    advantages: Tensor
    lengths: Tensor
    token_weight: TokenWeight | None = None
    share: Tensor | None = None

    def counts(self, tokens: Tensor) -> Tensor:
        """Returns how much each token counts, of those in a mask: its share, and 0 elsewhere; bool [N] -> float [N]."""
        counted = tokens.to(self.log_prob.dtype)
        return counted if self.share is None else counted * self.share

    @property
    def kept(self) -> Tensor:
        """Mask of the tokens that are not excluded by their advantage, bool [N]; metrics are of these."""
        return ~self.advantages.isnan().any(0)

    @property
    def log_mismatch(self) -> Tensor:
        """``lp_old - lp_rollout``, trainer against engine with the same weights; [N], a constant."""
        return (self.old_log_prob - self.rollout_log_prob).detach()


@dataclass(frozen=True)
class LossSums:
    """Sums over the tokens that are not excluded, by their shares; detached scalars that add up over microbatches.

    Attributes:
        tokens: their number.
        kl: of the chosen KL estimator; 0 without a reference.
        clipped: number of tokens of which the clip, or a bound of the ratio, removed the policy gradient.
        ratio: of the importance ratio.
        entropy: of the policy, in nats.
        weight: of the rollout correction's weight.
        bounded: number of tokens whose weight the correction truncated or masked.
        mismatch: ``|lp_old - lp_rollout|``.
        mismatch_k1: ``lp_rollout - lp_old``; its mean estimates KL(engine || trainer).
        mismatch_k3: the same by k3, never negative.
    """

    tokens: Tensor
    kl: Tensor
    clipped: Tensor
    ratio: Tensor
    entropy: Tensor
    weight: Tensor
    bounded: Tensor
    mismatch: Tensor
    mismatch_k1: Tensor
    mismatch_k3: Tensor

    def stack(self) -> Tensor:
        """All sums in one tensor, for adding and for a single all-reduce; `unstack` is the inverse."""
        return torch.stack([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def unstack(cls, stacked: Tensor) -> "LossSums":
        """The inverse of `stack`."""
        return cls(*stacked.unbind())

    def means(self) -> dict[str, Tensor]:
        """Token means by TensorBoard tag; 0 where there was no token."""
        sums = {
            "policy/kl": self.kl,
            "policy/clip_fraction": self.clipped,
            "policy/ratio": self.ratio,
            "policy/entropy": self.entropy,
            "rollout/correction_weight": self.weight,
            "rollout/correction_bounded": self.bounded,
            "rollout/mismatch_mean": self.mismatch,
            "rollout/mismatch_k1": self.mismatch_k1,
            "rollout/mismatch_k3": self.mismatch_k3,
        }
        return {tag: value / self.tokens.clamp(min=1) for tag, value in sums.items()}


@dataclass(frozen=True)
class LossOutput:
    """Contribution of a microbatch.

    Attributes:
        loss: scalar, this microbatch's part of the optimiser batch's loss: parts are added, never averaged.
        sums: for metrics.
        mismatch_max: largest ``|lp_old - lp_rollout|``, a detached scalar.
        ratios: importance ratio of each token, NaN where its response is excluded, detached; float [N].
    """

    loss: Tensor
    sums: LossSums
    mismatch_max: Tensor
    ratios: Tensor
