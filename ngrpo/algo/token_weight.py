"""Token weights: which tokens the surrogate learns from, and how much from each."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ngrpo.algo.moments import Reduce, moments
from ngrpo.algo.order_statistics import quantile, smallest, total
from ngrpo.errors import SettingError


@dataclass(frozen=True)
class WeighedTokens:
    """The N tokens that weights are made for, of an optimiser batch or of a microbatch; nothing carries gradient.

    Attributes:
        log_prob: float [N], under the current policy.
        entropy: float [N], of the same, in nats at the temperature of the rollouts.
        advantages: float [A, N]; NaN marks an excluded token.
        uniform: float [N], a draw in (0, 1) for each token, by its request's key and position.
        reduce: over the ranks; of a microbatch there is nothing to reduce.
    """

    log_prob: Tensor
    entropy: Tensor
    advantages: Tensor
    uniform: Tensor
    reduce: Reduce

    @property
    def kept(self) -> Tensor:
        """Mask of the tokens that are not excluded, bool [N]."""
        return ~self.advantages.isnan().any(0)


class TokenWeight(NamedTuple):
    """Result of a token weighting; constants in backward.

    Attributes:
        weight: float [A, N] or [1, N], 0 or above: multiplies the surrogate, not the KL and the entropy bonus. For
            every clip here this is a weight on the advantage.
        counted: bool [N]; the others take no part in the loss, in none of its terms, nor in its denominators.
        penalty: float [N], the coefficient of ``|lp - lp_old|`` that is added to the loss; None is 0.
    """

    weight: Tensor
    counted: Tensor
    penalty: Tensor | None = None


class TokenWeighting(ABC):
    """Weighs the tokens of a batch.

    Attributes:
        batch_wide: statistics over the whole optimiser batch, on all ranks, are needed. The weights are then made
            before its first microbatch, from the log-probs and entropies before the rollout batch's first step, which
            are scored for it; on that step they are the current ones. Others see the microbatch as it is now.
    """

    batch_wide: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, tokens: WeighedTokens) -> TokenWeight:
        """Returns the weights; a collective where `batch_wide`."""


@dataclass(frozen=True)
class EvenTokens(TokenWeighting):
    """``w = 1``: every token counts as it is."""

    def __call__(self, tokens: WeighedTokens) -> TokenWeight:
        """See `TokenWeighting`."""
        return even(tokens.log_prob)


@dataclass(frozen=True)
class ClipCov(TokenWeighting):
    """Drops a few of the tokens whose log-prob and advantage are large together (Clip-Cov, arXiv 2505.22617).

        cov = (lp - mean lp) (A - mean A)        candidates: low < cov < high

    They cause most of the loss of entropy. Of the candidates ``max(int(share N), 1)`` get the weight 0 and stay in the
    denominators, those of the smallest draws by request key and position, so that no layout of the batch matters.
    verl's code draws by microbatch, from the current policy's log-probs, among tokens that the clip has not bounded.

    Attributes:
        share: of the N tokens of the optimiser batch.
        low: smallest covariance of a candidate.
        high: largest.
    """

    batch_wide: ClassVar[bool] = True
    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if not self.low < self.high:
            raise SettingError(
                f"algo.token_weight.low={self.low} leaves nothing below algo.token_weight.high={self.high}; lower it."
            )

    def __call__(self, tokens: WeighedTokens) -> TokenWeight:
        """See `TokenWeighting`."""
        found = covariance(tokens)
        candidate = (found > self.low) & (found < self.high)
        draws = tokens.uniform.masked_fill(~candidate, torch.nan)
        (bound,) = smallest(draws, [_count(self.share, tokens)], tokens.reduce)
        dropped = candidate & (tokens.uniform <= bound)
        return even(tokens.log_prob)._replace(weight=(~dropped).to(tokens.log_prob.dtype)[None])


@dataclass(frozen=True)
class KlCov(TokenWeighting):
    """Adds ``coef |lp - lp_old|`` to the tokens of the largest covariance, see `ClipCov` (KL-Cov, arXiv 2505.22617).

    To ``max(int(share N), 1)`` of them, and more where covariances are equal; to none where all are 0. Meant for
    ``clip=unclipped``. On a batch's first step the penalty has no slope: with one step it is plain REINFORCE. The
    coefficient is the paper's; verl's configuration has 0.1. share is 2e-3 for 7B models, 2e-4 for 32B.

    Attributes:
        share: of the N tokens of the optimiser batch.
        coef: of the penalty.
    """

    batch_wide: ClassVar[bool] = True
    share: float = 2e-3
    coef: float = 1.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if not self.coef >= 0:
            raise SettingError(f"algo.token_weight.coef={self.coef} rewards distance; choose 0 or more.")

    def __call__(self, tokens: WeighedTokens) -> TokenWeight:
        """See `TokenWeighting`."""
        found = covariance(tokens)
        count, everything = _count(self.share, tokens), total(tokens.kept, tokens.reduce)
        first, bound, last = smallest(-found, [1, count, everything], tokens.reduce)
        chosen = (found >= -bound) & (first != 0 or last != 0)
        return even(tokens.log_prob)._replace(penalty=self.coef * chosen.to(tokens.log_prob.dtype))


@dataclass(frozen=True)
class ForkingTokens(TokenWeighting):
    """Learns from the tokens of the highest entropy alone (80/20, arXiv 2506.01939, eq. 6).

        kept: H >= the quantile 1 - share of H over the tokens of the optimiser batch

    Ties are kept, but no tokens of H = 0 with a share below 1: in truncated sampling most sets may have one id, whose
    token has no gradient whatever it weighs. The others leave the denominators too, as in the paper: token means are
    over the kept tokens, and a response without one is not counted. TRL's code divides by all tokens, so that its steps
    are about ``share`` times as large, and takes the entropies of the current policy.

    Attributes:
        share: of the tokens to learn from.
    """

    batch_wide: ClassVar[bool] = True
    share: float = 0.2

    def __post_init__(self) -> None:
        _check_share(self.share)

    def __call__(self, tokens: WeighedTokens) -> TokenWeight:
        """See `TokenWeighting`."""
        bound = quantile(tokens.entropy.masked_fill(~tokens.kept, torch.nan), 1 - self.share, tokens.reduce)
        unsure = (tokens.entropy > 0) | (self.share == 1)
        return even(tokens.log_prob)._replace(counted=(tokens.entropy >= bound) & unsure)


@dataclass(frozen=True)
class EntropyShaped(TokenWeighting):
    """``A' = A + min(alpha H, |A| / kappa)``: the advantage with a capped share of the entropy (arXiv 2506.14758).

    As a weight ``1 + sgn(A) min(alpha H / |A|, 1 / kappa)``, and 1 where A = 0: groups without a signal stay so. Right
    answers push more on uncertain tokens, wrong ones less. H is of the current policy and carries no gradient. alpha is
    0.4 with GRPO and 0.1 with PPO.

    Attributes:
        alpha: weight of the entropy in nats.
        kappa: above 1, so that no sign changes.
    """

    alpha: float = 0.4
    kappa: float = 2.0

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise SettingError(f"algo.token_weight.alpha={self.alpha} is negative; choose 0 or more.")
        if not self.kappa > 1:
            raise SettingError(
                f"algo.token_weight.kappa={self.kappa} lets the entropy turn an advantage's sign; choose more than 1."
            )

    def __call__(self, tokens: WeighedTokens) -> TokenWeight:
        """See `TokenWeighting`."""
        advantages = tokens.advantages.nan_to_num(0.0)
        size = advantages.abs().clamp(min=torch.finfo(advantages.dtype).tiny)
        shaped = (self.alpha * tokens.entropy / size).clamp(max=1 / self.kappa)
        return even(tokens.log_prob)._replace(weight=1 + advantages.sign() * shaped)


def even(like: Tensor) -> TokenWeight:
    """Returns the weights of tokens [N] that all count alike."""
    return TokenWeight(torch.ones_like(like)[None], torch.ones_like(like, dtype=torch.bool))


def covariance(tokens: WeighedTokens) -> Tensor:
    """``(lp - mean lp) (A - mean A)``, means over the tokens of all ranks; A is the sum of the channels.

    Returns:
        float64 [N]; NaN of excluded tokens.
    """
    advantage = tokens.advantages.sum(0).double()
    log_prob = tokens.log_prob.double().masked_fill(~tokens.kept, torch.nan)
    return _centred(log_prob, tokens.reduce) * _centred(advantage, tokens.reduce)


def _centred(values: Tensor, reduce: Reduce) -> Tensor:
    """``x - mean x`` over all ranks, exactly 0 where all are equal, since rounding must not choose; NaN is kept."""
    found = moments(values, reduce)
    return (values - found.mean.to(values.device)).masked_fill(found.equal.to(values.device) & ~values.isnan(), 0.0)


def _count(share: float, tokens: WeighedTokens) -> int:
    return max(int(share * total(tokens.kept, tokens.reduce)), 1)


def _check_share(share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise SettingError(f"algo.token_weight.share={share} is no share of the tokens; choose a value in [0, 1].")
