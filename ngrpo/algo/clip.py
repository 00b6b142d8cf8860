"""The clipped surrogate, per token, as a loss to minimise.

Log-ratios are [N], advantages [N] or, with several channels (`ngrpo.algo.credit.Credited`), [A, N]. Scaling an
advantage by c >= 0 scales every one of these losses by c.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.algo.marks import reads_log_prob

_TINY = 1e-8
"""Added to the probabilities of all other tokens, which are 0 for a token that is certain; verl's."""


class Surrogate(NamedTuple):
    """Result of a clip function.

    Attributes:
        loss: float, of the advantage's shape.
        clipped: bool, the same shape; the bound is active, so the token has no policy gradient.
        penalty: float [N], added to the loss of every token that counts, whatever weighs the surrogate; None is 0.
    """

    loss: Tensor
    clipped: Tensor
    penalty: Tensor | None = None


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, low: float, high: float, dual: float | None = None
) -> Surrogate:
    """``max(-A r, -A clip(r, 1 - low, 1 + high))``, at most ``dual * |A|`` where A < 0.

    A > 0 is cut off only above ``1 + high`` and A < 0 only below ``1 - low``; without ``dual`` a negative
    advantage has no upper bound on r. Symmetric bounds are PPO's (arXiv 1707.06347), ``high > low`` is DAPO's
    (arXiv 2503.14476), ``dual = 3`` is verl's default (arXiv 1912.09729).

    Args:
        log_ratio: float [N].
        advantage: float [..., N], a constant.
        low: distance of the lower bound from 1.
        high: distance of the upper bound from 1.
        dual: the multiple of ``|A|`` that bounds the loss of a negative advantage.
    """
    ratio = log_ratio.exp()
    unclipped = -advantage * ratio
    loss = torch.maximum(unclipped, -advantage * ratio.clamp(1 - low, 1 + high))
    if dual is not None:
        ceiling = -dual * advantage
        loss = torch.where((advantage < 0) & (loss > ceiling), ceiling, loss)
    return Surrogate(loss, loss != unclipped)


def unclipped(log_ratio: Tensor, advantage: Tensor) -> Surrogate:
    """``-A r``: the plain importance-weighted policy gradient."""
    loss = -advantage * log_ratio.exp()
    return Surrogate(loss, torch.zeros_like(loss, dtype=torch.bool))


def clipped_weight(log_ratio: Tensor, advantage: Tensor, high: float) -> Surrogate:
    """``-sg(min(r, 1 + high)) A log r``: every token learns, with a bounded weight (CISPO, arXiv 2506.13585).

    The gradient is ``-w A`` per unit of log-prob; the value means nothing. The paper gives no number for ``high``.

    Args:
        log_ratio: float [N].
        advantage: float [..., N], a constant.
        high: distance of the weight's bound from 1.

    Returns:
        ``clipped`` marks bounded weights, which still carry gradient.
    """
    ratio = log_ratio.detach().exp()
    loss = -ratio.clamp(max=1 + high) * advantage * log_ratio
    return Surrogate(loss, (ratio > 1 + high).expand_as(loss))


def sapo(log_ratio: Tensor, advantage: Tensor, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Surrogate:
    """``-A (4 / tau) sigmoid(tau (r - 1))``: a smooth gate instead of a clip (SAPO, arXiv 2511.20347).

    tau is ``tau_pos`` where A > 0, else ``tau_neg``. The gradient is that of ``-A r`` times ``4 f (1 - f)``, f the
    sigmoid: 1 at r = 1, falling on both sides, faster for negative advantages. The value is ``-2 A / tau`` at r = 1, so
    that losses are not to be compared across methods. Bounded: no dual clip is needed. The paper was not read; the
    formula is that of verl's code and of TRL's.

    Args:
        log_ratio: float [N].
        advantage: float [..., N], a constant.
        tau_pos: steepness where A > 0.
        tau_neg: steepness elsewhere.

    Returns:
        ``clipped`` marks nothing: every token keeps some gradient.
    """
    tau = _by_sign(advantage, tau_pos, tau_neg)
    loss = -advantage * (4 / tau) * torch.sigmoid(tau * (log_ratio.exp() - 1))
    return Surrogate(loss, torch.zeros_like(loss, dtype=torch.bool))


@reads_log_prob
def dppo_tv(
    log_ratio: Tensor, advantage: Tensor, log_prob: Tensor, low: float = 0.15, high: float = 0.15, cap: float = 20.0
) -> Surrogate:
    """``-sg(min(r, cap)) A log r`` of tokens whose probability has not moved too far (DPPO, arXiv 2602.04879).

        kept: p - q <= high where A > 0, p - q >= -low elsewhere        p = exp(lp), q = exp(lp_old)

    The bound is on the change of the probability itself (total variation), since ratios exaggerate rare tokens and
    understate frequent ones: a token that goes from 0.001 to 0.02 is kept, one from 0.5 to 0.66 is not. A token that
    moves back towards q is always kept. The paper was not read; the form is that of verl's code, whose default for
    ``cap`` is 20 (its configuration has 3, its example 10000). prime-rl's is `dppo_tv_squared`.

    Args:
        log_ratio: float [N], of tokens.
        advantage: float [..., N], a constant.
        log_prob: float [N], under the current policy, a constant.
        low: largest decrease of the probability.
        high: largest increase.
        cap: largest weight.

    Returns:
        ``clipped`` marks tokens that are not kept.
    """
    return _masked(log_ratio, advantage, _near(log_ratio, advantage, log_prob, low, high), cap)


@reads_log_prob
def dppo_tv_squared(
    log_ratio: Tensor, advantage: Tensor, log_prob: Tensor, low: float = 0.2, high: float = 0.2, coef: float = 1e-3
) -> Surrogate:
    """``-A r`` of the tokens that `dppo_tv` keeps, and ``coef (log r)^2`` of all tokens (prime-rl's code for DPPO).

    The weight has no cap, and tokens that moved too far are still pulled back by the square. That code has the engine's
    log-probs for lp_old: ``algo.ratio_to=engine``.

    Args:
        log_ratio: float [N], of tokens.
        advantage: float [..., N], a constant.
        log_prob: float [N], under the current policy, a constant.
        low: largest decrease of the probability.
        high: largest increase.
        coef: of the square.

    Returns:
        ``clipped`` marks tokens that are not kept.
    """
    kept = _near(log_ratio, advantage, log_prob, low, high)
    return Surrogate(-advantage * log_ratio.exp() * kept, ~kept, coef * log_ratio.square())


@reads_log_prob
def dppo_kl(
    log_ratio: Tensor, advantage: Tensor, log_prob: Tensor, low: float = 0.05, high: float = 0.05, cap: float = 20.0
) -> Surrogate:
    """`dppo_tv` with the binary KL of the token's probability as the distance (DPPO, arXiv 2602.04879).

        KL = q log(q / p) + (1 - q) log((1 - q) / (1 - p))
        kept: KL <= high or p <= q where A > 0, KL <= low or p >= q elsewhere

    Args:
        log_ratio: float [N], of tokens.
        advantage: float [..., N], a constant.
        log_prob: float [N], under the current policy, a constant.
        low: largest KL of a token that became less likely.
        high: largest KL of one that became likelier.
        cap: largest weight.

    Returns:
        ``clipped`` marks tokens that are not kept.
    """
    old, moved = _old(log_prob, log_ratio), log_ratio.detach()
    rest, old_rest = -log_prob.expm1(), -old.expm1()
    distance = -old.exp() * moved + old_rest * ((old_rest + _TINY) / (rest + _TINY)).log()
    back = torch.where(advantage > 0, moved <= 0, moved >= 0)
    return _masked(log_ratio, advantage, back | (distance <= _by_sign(advantage, high, low)), cap)


def _by_sign(advantage: Tensor, positive: float, other: float) -> Tensor:
    return torch.full_like(advantage, other).masked_fill(advantage > 0, positive)


def _old(log_prob: Tensor, log_ratio: Tensor) -> Tensor:
    # The subtraction may round to something above 0, which is no log-prob.
    return (log_prob - log_ratio.detach()).clamp(max=0.0)


def _near(log_ratio: Tensor, advantage: Tensor, log_prob: Tensor, low: float, high: float) -> Tensor:
    """Says of which tokens the probability has not moved too far to where the advantage pushes it."""
    change = log_prob.exp() - _old(log_prob, log_ratio).exp()
    return torch.where(advantage > 0, change <= high, change >= -low)


def _masked(log_ratio: Tensor, advantage: Tensor, kept: Tensor, cap: float) -> Surrogate:
    weight = log_ratio.detach().exp().clamp(max=cap)
    return Surrogate(-weight * advantage * log_ratio * kept, ~kept)
