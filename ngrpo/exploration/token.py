"""Ordinary sampling."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext


@dataclass(frozen=True)
class TokenSampling(Exploration):
    """o_t ~ softmax(z_t / tau), x_t = E[o_t].

    The temperature tau is ``rollout.temperature``. top_k and top_p truncate in this order, top_p over the
    renormalised survivors (the order of transformers and vLLM). A truncated distribution is for evaluation:
    training with it is refused, since the trainer scores the full softmax.

    Attributes:
        top_k: keep the k most likely tokens (ties of the k-th included); 0 keeps all.
        top_p: keep the smallest set of most likely tokens with at least this mass; 1.0 keeps all.
    """

    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise SettingError(f"exploration.top_k={self.top_k} is negative; use 0 to keep every token.")
        if not 0.0 < self.top_p <= 1.0:
            raise SettingError(f"exploration.top_p={self.top_p} is not in (0, 1]; use 1.0 to keep every token.")

    @property
    def truncates(self) -> bool:  # type: ignore[override]
        """Whether any token can be cut off."""
        return self.top_k > 0 or self.top_p < 1.0

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Draws from the (truncated) softmax."""
        if self.top_k > 0:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p < 1.0:
            logits = keep_top_p(logits, self.top_p)
        return Step.plain(ctx.sample(logits))


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Sets all but the k largest logits of a row to -inf; [R, V] -> [R, V]."""
    smallest_kept = logits.topk(min(k, logits.shape[-1]), dim=-1).values[:, -1:]
    return logits.masked_fill(logits < smallest_kept, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Sets all logits outside the smallest most-likely set with mass >= p to -inf; [R, V] -> [R, V]."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    dropped = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, mass_before(ordered) >= p)
    return logits.masked_fill(dropped, -torch.inf)


def mass_before(ordered: Tensor) -> Tensor:
    """Returns the probability of what stands before each of the logits, largest first; [R, K] -> float64 [R, K].

    The first has 0. In float32 the sums over a whole vocabulary reach 1 too early, and drop its tail.
    """
    probs = ordered.double().softmax(-1)
    return probs.cumsum(-1) - probs
