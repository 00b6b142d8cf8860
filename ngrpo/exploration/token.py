"""Ordinary sampling."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.support import check_size, draw, likeliest, no_more_than_ids
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.utils.running_sums import running_sums
from ngrpo.utils.sorted_rows import sorted_rows


@dataclass(frozen=True)
class TokenSampling(Exploration):
    """o_t ~ softmax(z_t / tau), x_t = E[o_t].

    The temperature tau is ``rollout.temperature``. top_k and top_p truncate in this order, top_p over the
    renormalised survivors (the order of transformers and vLLM).

    A truncated distribution is trained with as it was drawn from: each position records the ids S_t that were kept, and
    policy, old policy and reference all score o_t by p(o_t) / sum_{v in S_t} p(v) (`ngrpo.exploration.support`).

    Attributes:
        top_k: keep the k most likely tokens (ties of the k-th included); 0 keeps all.
        top_p: keep the smallest set of most likely tokens with at least this mass; 1.0 keeps all.
        largest_support: most ids that are kept and recorded, or top_k where that is more; beyond it the least likely
            are dropped. 0 records none and cuts nothing, and cannot be trained with: evaluations are made so.
    """

    top_k: int = 0
    top_p: float = 1.0
    largest_support: int = 128

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise SettingError(f"exploration.top_k={self.top_k} is negative; use 0 to keep every token.")
        if not 0.0 < self.top_p <= 1.0:
            raise SettingError(f"exploration.top_p={self.top_p} is not in (0, 1]; use 1.0 to keep every token.")
        check_size(self.largest_support)

    @property
    def truncates(self) -> bool:  # type: ignore[override]
        """Whether any token can be cut off."""
        return self.top_k > 0 or self.top_p < 1.0

    @property
    def support(self) -> int:  # type: ignore[override]
        """C, for a distribution that is truncated and recorded."""
        return max(self.largest_support, self.top_k) if self.truncates and self.largest_support else 0

    @property
    def deterministic(self) -> bool:  # type: ignore[override]
        """Whether one id is kept, up to ties."""
        return self.top_k == 1 or self.support == 1

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Needs no tables; refuses to record the whole vocabulary at every position."""
        if self.support and self.top_k >= len(embedding):
            raise SettingError(
                f"exploration.top_k={self.top_k} keeps all {len(embedding)} ids of the vocabulary and records them at "
                "every position; set exploration.top_k=0, which keeps as many and records none."
            )
        return {}

    def unrecorded(self) -> "TokenSampling":
        """Returns it without a bound on the ids."""
        return replace(self, largest_support=0) if self.support else self

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Draws from the (truncated) softmax."""
        return draw(*self._kept(logits), ctx) if self.support else Step.plain(ctx.sample(self._masked(logits)))

    def _kept(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the logits of the support, -inf for what is dropped, and their ids; [R, C] each."""
        largest, ids = likeliest(logits, self.support)
        if self.top_k > 0:
            largest = largest.masked_fill(largest < largest[:, self.top_k - 1, None], -torch.inf)
        if self.top_p < 1.0:
            normaliser = None if self.top_k > 0 else logits.double().logsumexp(-1, keepdim=True)
            largest = largest.masked_fill(mass_before(largest, normaliser) >= self.top_p, -torch.inf)
        return largest, ids

    def _masked(self, logits: Tensor) -> Tensor:
        """Returns all logits, -inf for what is dropped; [R, V]."""
        if self.top_k > 0:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p < 1.0:
            logits = keep_top_p(logits, self.top_p)
        return logits


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Sets all but the k largest logits of a row to -inf; [R, V] -> [R, V]."""
    smallest_kept = logits.topk(no_more_than_ids(k, logits), dim=-1).values[:, -1:]
    return logits.masked_fill(logits < smallest_kept, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Sets all logits outside the smallest most-likely set with mass >= p to -inf; [R, V] -> [R, V]."""
    ordered, order = sorted_rows(logits, descending=True)
    dropped = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, mass_before(ordered) >= p)
    return logits.masked_fill(dropped, -torch.inf)


def mass_before(ordered: Tensor, normaliser: Tensor | None = None) -> Tensor:
    """Returns the probability of what stands before each of the logits, largest first; [R, K] -> float64 [R, K].

    The first has 0. In float32 the sums over a whole vocabulary reach 1 too early, and drop its tail.

    Args:
        ordered: all logits of a distribution, or its largest ones.
        normaliser: of the distribution; float64 [R, 1], None where all of it is given.
    """
    largest = ordered[:, :1].double()
    weights = (ordered.double() - largest).exp()
    sums = running_sums(weights)
    return (sums - weights) / (sums[:, -1:] if normaliser is None else (normaliser - largest).exp())
