"""min-p sampling."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.support import check_size, draw, likeliest


@dataclass(frozen=True)
class MinPSampling(Exploration):
    """o_t ~ p_t restricted to p(v) >= p_min max_u p(u), x_t = E[o_t] (arXiv 2407.01082).

    p_t is the softmax after the temperature; this order is part of the definition. The restricted distribution is
    trained with as it was drawn from, on the ids that were kept (`ngrpo.exploration.support`).

    Attributes:
        p_min: smallest kept probability, relative to the largest; 0 keeps all, 1 is greedy up to ties.
        largest_support: most ids that are kept and recorded; beyond it the least likely are dropped. 0 records none and
            cuts nothing, and cannot be trained with: evaluations are made so.
    """

    p_min: float = 0.1
    largest_support: int = 128

    def __post_init__(self) -> None:
        if not 0.0 <= self.p_min <= 1.0:
            raise SettingError(f"exploration.p_min={self.p_min} is not in [0, 1]; 0.05 to 0.1 is usual.")
        check_size(self.largest_support)

    @property
    def truncates(self) -> bool:  # type: ignore[override]
        """Whether any token can be cut off."""
        return self.p_min > 0.0

    @property
    def support(self) -> int:  # type: ignore[override]
        """C, for a distribution that is restricted and recorded."""
        return self.largest_support if self.truncates else 0

    @property
    def deterministic(self) -> bool:  # type: ignore[override]
        """Whether one id is kept, up to ties."""
        return self.p_min == 1.0 or self.support == 1

    def unrecorded(self) -> "MinPSampling":
        """Returns it without a bound on the ids."""
        return replace(self, largest_support=0) if self.support else self

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Draws from the restricted softmax."""
        if self.support:
            largest, ids = likeliest(logits, self.support)
            return draw(keep_min_p(largest, self.p_min), ids, ctx)
        return Step.plain(ctx.sample(keep_min_p(logits, self.p_min)))


def keep_min_p(logits: Tensor, p_min: float) -> Tensor:
    """Sets logits whose probability is below ``p_min`` times the largest to -inf; [R, V] -> [R, V]."""
    if p_min == 0.0:
        return logits
    threshold = logits.amax(-1, keepdim=True) + torch.full((), p_min, device=logits.device).log()
    return logits.masked_fill(logits < threshold, -torch.inf)
