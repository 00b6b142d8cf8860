"""Group-relative advantages: the rewards of the G responses to one prompt against each other."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor


def group_relative(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage that compares the responses of a group: a group of one is refused at start-up."""
    function.group_relative = True  # type: ignore[attr-defined]
    return function


def is_dead(rewards: Tensor) -> Tensor:
    """Which groups carry no signal: all scored rewards equal, or none scored.

    The test is exact equality: in float32 the mean of three rewards of 0.9 is not 0.9, and a division by the
    tiny standard deviation that results would turn rounding into an advantage. A group of one (G = 1) has
    nothing to be compared with and is dead only if it is unscored.

    Args:
        rewards: float [P, G]; NaN marks an unscored sample.

    Returns:
        bool [P].
    """
    unscored = rewards.isnan()
    if rewards.shape[-1] == 1:
        return unscored[:, 0]
    highest = rewards.masked_fill(unscored, -math.inf).amax(-1)
    lowest = rewards.masked_fill(unscored, math.inf).amin(-1)
    return highest <= lowest


@group_relative
def group_centred(rewards: Tensor) -> Tensor:
    """``A_i = R_i - mean(R)`` (Dr.GRPO, arXiv 2503.20783).

    Unscored samples (NaN) are left out of the mean and get 0; dead groups get exactly 0; in a group of one
    the mean is taken as 0.

    Args:
        rewards: float [P, G].

    Returns:
        Advantages [P, G] in the same dtype, never NaN.
    """
    unscored = rewards.isnan()
    if rewards.shape[-1] == 1:
        return rewards.masked_fill(unscored, 0.0)
    scored = (~unscored).sum(-1, keepdim=True)
    mean = rewards.nansum(-1, keepdim=True) / scored.clamp(min=1)
    return (rewards - mean).masked_fill(unscored | is_dead(rewards)[:, None], 0.0)


@group_relative
def group_standardised(rewards: Tensor, eps: float = 1e-6) -> Tensor:
    """``A_i = (R_i - mean(R)) / (std(R) + eps)``, unbiased std (GRPO, arXiv 2402.03300).

    Treats unscored samples and dead groups as `group_centred` does; in a group of one the mean is taken as 0
    and the std as 1 (verl's convention).

    Args:
        rewards: float [P, G].
        eps: positive; 1e-6 in verl and N-GRPO, 1e-4 in TRL.

    Returns:
        Advantages [P, G] in the same dtype, never NaN.
    """
    centred = group_centred(rewards)
    if rewards.shape[-1] == 1:
        return centred / (1.0 + eps)
    scored = (~rewards.isnan()).sum(-1, keepdim=True)
    variance = centred.square().sum(-1, keepdim=True) / (scored - 1).clamp(min=1)
    return centred / (variance.sqrt() + eps)
