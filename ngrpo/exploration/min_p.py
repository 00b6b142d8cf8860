"""min-p sampling."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext


@dataclass(frozen=True)
class MinPSampling(Exploration):
    """o_t ~ p_t restricted to p(v) >= p_min max_u p(u), x_t = E[o_t] (arXiv 2407.01082).

    p_t is the softmax after the temperature; this order is part of the definition. The restricted distribution is for
    evaluation: training with it is refused, since the trainer scores the full softmax.

    Attributes:
        p_min: smallest kept probability, relative to the largest; 0 keeps all, 1 is greedy up to ties.
    """

    p_min: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.p_min <= 1.0:
            raise SettingError(f"exploration.p_min={self.p_min} is not in [0, 1]; 0.05 to 0.1 is usual.")

    @property
    def truncates(self) -> bool:  # type: ignore[override]
        """Whether any token can be cut off."""
        return self.p_min > 0.0

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Draws from the restricted softmax."""
        return Step.plain(ctx.sample(keep_min_p(logits, self.p_min)))


def keep_min_p(logits: Tensor, p_min: float) -> Tensor:
    """Sets logits whose probability is below ``p_min`` times the largest to -inf; [R, V] -> [R, V]."""
    if p_min == 0.0:
        return logits
    threshold = logits.amax(-1, keepdim=True) + torch.full((), p_min, device=logits.device).log()
    return logits.masked_fill(logits < threshold, -torch.inf)
