"""Semantic neighbor mixing that follows the uncertainty of each step (N-GRPO-E)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.neighbor_base import NeighborBase, check_ranges
from ngrpo.exploration.soft import entropy
from ngrpo.exploration.vocabulary import Vocabulary


@dataclass(frozen=True)
class EntropyNeighborMixing(NeighborBase):
    """N-GRPO-E: neighbor mixing whose rate and number of ids rise with the entropy of the step.

        H_t = entropy of softmax(z_t / tau),  g = clip((H_t - H_low) / (H_high - H_low), 0, 1)
        rho_t = rho_min + (rho_max - rho_min) g,   k_t = k_min + floor((k_max - k_min) g + 1/2)

    A variant of N-GRPO (arXiv 2606.10768) by this project; its paper fixes rho and k. H_low = H_high is a step,
    g = [H_t >= H_high]. The rest is `NeighborMixing`, with the same draws: equal smallest and largest values give it
    exactly. H_t is taken over the tokens of the tokenizer, without padded rows.

    Exploration is tied to the temperature, since H_t is. To compare it with N-GRPO at an equal mean rate, choose
    rate_max so that ``exploration/gated_fraction``, the mean of rho_t, is N-GRPO's. The defaults are not tuned.

    Attributes:
        rate_min: rho of certain steps.
        rate_max: rho of uncertain steps.
        k_min: ids of a mixture at certain steps, the anchor included.
        k_max: the same at uncertain steps.
        entropy_low: in nats; at and below it a step is certain.
        entropy_high: in nats; at and above it a step is uncertain.
    """

    rate_min: float = 0.0
    rate_max: float = 0.3
    k_min: int = 2
    k_max: int = 5
    entropy_low: float = 0.3
    entropy_high: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges({"rate_min": self.rate_min, "rate_max": self.rate_max}, {"k_min": self.k_min}, least=2)
        for name in ("entropy_low", "entropy_high"):
            if not math.isfinite(getattr(self, name)):
                raise SettingError(f"exploration.{name}={getattr(self, name)} is no entropy; choose a number of nats.")
        for low, high in (("rate_min", "rate_max"), ("k_min", "k_max"), ("entropy_low", "entropy_high")):
            smaller, larger = getattr(self, low), getattr(self, high)
            if not smaller <= larger:
                raise SettingError(f"exploration.{low}={smaller} is above exploration.{high}={larger}; swap them.")

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = k_max."""
        return self.k_max

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Adds to the neighbour table which rows are padding; bool [V]."""
        rows = torch.arange(len(embedding), device=embedding.device)
        return super().prepare(embedding, vocabulary) | {"padding": rows >= vocabulary.size}

    def adapted(self, nats: Tensor) -> tuple[Tensor, Tensor]:
        """Returns rho_t and k_t, int64, of entropies in nats; [R] each."""
        if self.entropy_low < self.entropy_high:
            share = ((nats - self.entropy_low) / (self.entropy_high - self.entropy_low)).clamp(0.0, 1.0)
        else:
            share = (nats >= self.entropy_high).to(nats.dtype)
        k = self.k_min + ((self.k_max - self.k_min) * share + 0.5).floor().long()
        return self.rate_min + (self.rate_max - self.rate_min) * share, k

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Mixes the gated rows, draws the others."""
        least = torch.finfo(logits.dtype).min  # finite, since 0 times infinity is no entropy
        known = logits.masked_fill(ctx.tables["padding"], least).clamp(min=least)
        return self.mixed_step(logits, ctx, *self.adapted(entropy(known)))
