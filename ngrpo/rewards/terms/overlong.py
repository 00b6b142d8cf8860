"""DAPO's soft overlong punishment."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.rewards.terms.base import Responses


def overlong_punishment(lengths: Tensor, limit: int, cache: int) -> Tensor:
    """``0`` up to ``limit - cache`` tokens, then linearly down to ``-1`` at ``limit`` and beyond.

    (DAPO, arXiv 2503.14476, equation 13.)

    Args:
        lengths: response tokens; any dtype, any shape.
        limit: L_max, in tokens.
        cache: L_cache, in tokens; positive.

    Returns:
        float32, the shape of ``lengths``.
    """
    return ((limit - cache - lengths).float() / cache).clamp(-1.0, 0.0)


@dataclass(frozen=True)
class OverlongPunishment:
    """`overlong_punishment` as a reward term.

    With it the reward is no longer binary, and a group of wrong answers may carry a signal.

    Attributes:
        limit: L_max; the generation limit, so that a truncated response gets -1.
        cache: L_cache, the length over which the punishment grows.

    Raises:
        SettingError: the cache is not between 1 and the limit.
    """

    limit: int
    cache: int

    bounds: ClassVar[tuple[float, float]] = (-1.0, 0.0)

    def __post_init__(self) -> None:
        if not 1 <= self.cache <= self.limit:
            raise SettingError(
                f"reward_terms.overlong.term.cache={self.cache} must lie between 1 and rollout.max_new_tokens="
                f"{self.limit}; a fifth of it is the paper's."
            )

    def __call__(self, responses: Responses) -> Tensor:
        """Returns the punishment of each response; float32 [N]."""
        lengths = torch.tensor([rollout.length for rollout in responses.rollouts])
        return overlong_punishment(lengths, self.limit, self.cache)
