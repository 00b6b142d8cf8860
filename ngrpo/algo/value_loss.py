"""The critic's loss, per token."""

from typing import NamedTuple

import torch
from torch import Tensor


class ValueLoss(NamedTuple):
    """Result of `value_loss`.

    Attributes:
        loss: float [N].
        clipped: bool [N]; the clipped value has the larger error, so the token has no gradient if it left the range.
    """

    loss: Tensor
    clipped: Tensor


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> ValueLoss:
    """``0.5 max((V - ret)^2, (clip(V, V_old - c, V_old + c) - ret)^2)`` (PPO as in verl and OpenRLHF).

    Args:
        values: float [N], of the current critic.
        old_values: float [N], before this rollout batch's first step.
        returns: float [N], constants.
        clip: c; None leaves the second term out.
    """
    error = (values - returns).square()
    if clip is None:
        return ValueLoss(0.5 * error, torch.zeros_like(error, dtype=torch.bool))
    # Values inside the range stay to the bit, so that rounding makes none of them look clipped.
    bounded = (values.clamp(old_values - clip, old_values + clip) - returns).square()
    return ValueLoss(0.5 * torch.maximum(error, bounded), bounded > error)
