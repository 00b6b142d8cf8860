"""Consistency-aware credit (COPO)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.algo.credit import Credit, Credited, ScoredBatch
from ngrpo.algo.moments import Reduce, moments
from ngrpo.algo.segments import sequence_index
from ngrpo.errors import SettingError

_NATS = {"nats": 1.0, "bits": math.log(2)}


@dataclass(frozen=True)
class ConsistencyBlend(Credit):
    """Blends a loss inside the group with one across prompts, by how far the group's answers agree.

        H(q) = - sum_c pi_c log pi_c        pi_c: share of the responses to q whose final answer is c
        w(q) = sigmoid(gamma (H(q) - rho))
        loss(q) = w loss(A_local) + (1 - w) loss(A_global)

    (COPO, arXiv 2508.04138; read second-hand, and no released code could be compared.) A_local is the response's own
    advantage, A_global that of the prompt, `across_prompts`: a group that agrees on a wrong answer, which is dead
    inside, is pushed away from it. Losses are blended, not advantages: two channels, each clipped by its own sign. The
    weights are in the channels, since every clipped surrogate of w A, w >= 0, is w times that of A.

    A_global compares the prompts of the whole rollout batch on all ranks; with a single prompt it is 0. Answers are
    equal if their texts are; responses without an answer agree with each other, as one cluster. The base of the
    logarithm is not stated in the source; it decides much: of six responses in three pairs w is 0.0003 in nats and
    0.85 in bits.

    Attributes:
        gamma: steepness of the blend.
        rho: entropy at which both losses count half, in ``unit``.
        unit: of the entropy: nats | bits.
        eps: added to the standard deviation over the prompts.
    """

    gamma: float = 20.0
    rho: float = 1.5
    unit: str = "nats"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.unit not in _NATS:
            raise SettingError(f"algo.credit.unit={self.unit} is not known; choose one of {', '.join(_NATS)}.")
        for name in ("gamma", "rho"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"algo.credit.{name}={getattr(self, name)} is negative; choose 0 or more.")
        if not self.eps > 0:
            raise SettingError(f"algo.credit.eps={self.eps} may divide by zero; choose a small positive number.")

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """See `ngrpo.algo.credit.Credit`."""
        rewards, local = batch.groups.table(batch.rewards), batch.groups.table(advantages)
        entropy = answer_entropy(batch.groups.table(batch.answers, fill=-1), ~rewards.isnan()) / _NATS[self.unit]
        weight = torch.sigmoid(self.gamma * (entropy - self.rho)).to(local.dtype)[:, None]
        prompts = across_prompts(rewards.double().nanmean(-1), batch.reduce, self.eps).to(local.dtype)[:, None]
        between = ((1 - weight) * prompts).expand_as(local).masked_fill(local.isnan(), math.nan)
        blend = torch.stack((weight * local, between))
        return Credited(batch.groups.flat(blend)[:, sequence_index(batch.lengths)])


def answer_entropy(answers: Tensor, counted: Tensor) -> Tensor:
    """Entropy of the final answers of each group in nats.

    Args:
        answers: int64 [P, G].
        counted: bool [P, G]; the others are excluded.

    Returns:
        float64 [P]; 0 where nothing is counted.
    """
    equal = (answers[:, :, None] == answers[:, None, :]) & counted[:, None, :]
    total = counted.sum(-1, keepdim=True).clamp(min=1)
    share = equal.sum(-1).double() / total
    # Every response of a cluster of share pi contributes -log(pi) / n: the cluster in all -pi log(pi).
    return -(share.log().masked_fill(~counted, 0.0) / total).sum(-1)


def across_prompts(means: Tensor, reduce: Reduce, eps: float) -> Tensor:
    """``(R(q) - mean R) / (std R + eps)`` over the prompts of all ranks, unbiased std, exactly 0 where all are equal.

    Args:
        means: float [P], mean reward of each prompt; NaN is excluded and kept.
        reduce: over the ranks.
        eps: positive.

    Returns:
        Advantages [P] in the same dtype.
    """
    found = moments(means, reduce)
    advantages = (means.double() - found.mean) / (found.variance.sqrt() + eps)
    return advantages.masked_fill(found.equal & ~means.isnan(), 0.0).to(means.dtype)
