"""The clipped surrogate, per token, as a loss to minimise.

Log-ratios are [N], advantages [N] or, with several channels (`ngrpo.algo.credit.Credited`), [A, N]. Scaling an
advantage by c >= 0 scales every one of these losses by c.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Surrogate(NamedTuple):
    """Result of a clip function.

    Attributes:
        loss: float, of the advantage's shape.
        clipped: bool, the same shape; the bound is active, so the token has no policy gradient.
    """

    loss: Tensor
    clipped: Tensor


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
