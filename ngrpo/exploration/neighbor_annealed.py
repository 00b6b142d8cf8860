"""Semantic neighbor mixing that fades with training time (N-GRPO-T)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.neighbor_base import NeighborBase, check_ranges


@dataclass(frozen=True)
class AnnealedNeighborMixing(NeighborBase):
    """N-GRPO-T: neighbor mixing whose rate and number of ids go from a start to an end value over training.

        f      = (1 + cos(pi min(i / n, 1))) / 2,  i finished iterations, n = schedule_iterations
        rho(i) = rho_end + (rho_start - rho_end) f,   k(i) = floor(k_end + (k_start - k_end) f + 1/2)

    A variant of N-GRPO (arXiv 2606.10768) by this project; its paper fixes rho and k. The rest is `NeighborMixing`:
    equal start and end values give it exactly. The values are a function of i alone and constant within a batch of
    rollouts, so that a resumed run goes on where it was. A batch that is prefetched (``rollout.ahead=1``) is made with
    weights, rate and k of one iteration before. A start below the end is a warm-up.

    The schedule has a length of its own: ``trainer.iterations`` may be raised in a resumed run, which would change the
    rates of a schedule that went by it. The defaults are not tuned.

    Attributes:
        rate_start: rho of the first iteration.
        rate_end: rho from iteration ``schedule_iterations`` on.
        k_start: ids of a mixture, the anchor included, in the first iteration.
        k_end: the same from iteration ``schedule_iterations`` on.
        schedule_iterations: n, iterations from the start to the end values; 0 has the end values from the first on.
    """

    rate_start: float = 0.3
    rate_end: float = 0.05
    k_start: int = 5
    k_end: int = 2
    schedule_iterations: int = 630

    def __post_init__(self) -> None:
        super().__post_init__()
        rates = {"rate_start": self.rate_start, "rate_end": self.rate_end}
        check_ranges(rates, {"k_start": self.k_start, "k_end": self.k_end}, least=1)
        if self.schedule_iterations < 0:
            raise SettingError(
                f"exploration.schedule_iterations={self.schedule_iterations} is negative; choose 0 or more."
            )

    @property
    def width(self) -> int:  # type: ignore[override]
        """K, the larger of the two sizes."""
        return max(self.k_start, self.k_end)

    def schedule(self, progress: Tensor) -> dict[str, Tensor]:
        """Returns rho(i), float64 [], and k(i), int64 []."""
        done = (progress.double() / self.schedule_iterations).clamp(max=1.0) if self.schedule_iterations else None
        share = torch.zeros_like(progress, dtype=torch.float64) if done is None else (1 + (math.pi * done).cos()) / 2
        k = (self.k_end + (self.k_start - self.k_end) * share + 0.5).floor().long()
        return {"rate": self.rate_end + (self.rate_start - self.rate_end) * share, "k": k}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Mixes the gated rows, draws the others."""
        now = self.schedule(ctx.progress)
        return self.mixed_step(logits, ctx, now["rate"], now["k"])
