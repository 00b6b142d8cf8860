"""Limits on the distance of log-probs from the model's own: the rounding of the numbers they are computed with."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 1e-4
"""Nats that are always allowed; all that is in float32, of models that are not so large that they round more."""

OF_DENSITIES = 2e-3
"""The same of densities, which divide what the logits were rounded by by a small variance."""

FACTOR = 3.0
"""Most of a path's difference over the model's own difference between two batchings of the same rows."""

_TELLING = 1.0
"""Nats on average, or fraction of decisions, below which a limit must be to tell faults from rounding: tokens that are
scored one position off differ by about so much."""

_CERTAIN = 4.0
"""Standard errors by which scores must be nearer to those without mixtures before these count as missing."""

_LARGE = 10.0
"""Scores beyond it (densities are about -d/2) are compared relative to their size."""


@dataclass(frozen=True)
class Rounding:
    """Differences of a model's own scores by nothing but rounding.

    Attributes:
        mean: over tokens, in nats.
        max: of them.
    """

    mean: float
    max: float


@dataclass(frozen=True)
class Deviation:
    """Distance of a path's scores from the model's own, in nats.

    Attributes:
        mean: over tokens.
        max: of them.
        mean_limit: most of the mean.
        max_limit: most of the largest.
        tokens: that were compared.
        without_mixtures: whether the scores are those of the model without its mixtures, rather than its own.
    """

    mean: float
    max: float
    mean_limit: float
    max_limit: float
    tokens: int
    without_mixtures: bool = False

    @property
    def excessive(self) -> bool:
        """Whether it is more than rounding; NaN and infinity are, also where the model's own scores are not finite."""
        within = self.mean <= self.mean_limit and self.max <= self.max_limit
        return self.without_mixtures or not (within and math.isfinite(self.max))

    @property
    def telling(self) -> bool:
        """Whether rounding allows so little that passing says something."""
        return self.mean_limit < _TELLING


def rounding(own: Tensor, again: Tensor) -> Rounding:
    """Measures the rounding of a model's own scores by those of another batching; float32 [N] each."""
    difference = differences(own, again)
    return Rounding(float(difference.mean()), float(difference.max()))


def deviation(own: Tensor, path: Tensor, noise: Rounding, least: float = LEAST) -> Deviation:
    """Compares a path's scores of N tokens with the model's own, float32 [N] each; ``least`` is always allowed."""
    difference = differences(own, path)
    return Deviation(
        float(difference.mean()),
        float(difference.max()),
        max(least, FACTOR * noise.mean),
        max(least, FACTOR * noise.max),
        len(difference),
    )


def nearer_without(own: Tensor, without: Tensor, path: Tensor) -> bool:
    """Says whether a path's scores of N tokens are certainly nearer to those without mixtures; float32 [N] each.

    In bfloat16 what mixtures change can be less than what rounding allows; yet if they are missing, the squares of the
    path's differences are smaller to the scores without them, on average over the tokens.
    """
    gained = ((path - without).square() - (path - own).square())[own != without].double()
    if len(gained) < 2:
        return False
    error = gained.std() / len(gained) ** 0.5
    return bool(gained.mean() < -_CERTAIN * error)


def differences(own: Tensor, other: Tensor) -> Tensor:
    """Returns |own - other| in nats, relative to a tenth of large scores; 0 where both are the same infinity."""
    nats = (own - other).abs() / (own.abs() / _LARGE).clamp_min(1.0)
    return torch.where(own == other, 0.0, nats).nan_to_num(nan=math.inf, posinf=math.inf)
