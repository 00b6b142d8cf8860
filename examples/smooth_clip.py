"""A clip rule of your own: the gradient fades as the ratio leaves 1, instead of ending at a bound."""

import torch
from torch import Tensor

from ngrpo.algo.clip import Surrogate


def smooth_clip(log_ratio: Tensor, advantage: Tensor, sharpness: float = 4.0) -> Surrogate:
    """``-A f(r)``, f(r) = tanh(sharpness (r - 1)) / sharpness: the slope is 1 at r = 1, and falls on both sides.

    ``log_ratio`` is [N], ``advantage`` [channels, N]. ``clipped`` marks tokens with less than half of the gradient;
    their fraction is logged as policy/clip_fraction.
    """
    value = torch.tanh(sharpness * (log_ratio.exp() - 1)) / sharpness
    faded = 1 - (sharpness * value.detach()).square() < 0.5
    return Surrogate(-advantage * value, faded.expand_as(advantage))
