"""Semantic neighbor mixing (N-GRPO)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.neighbor_table import SIMILARITIES, excluded_rows, neighbor_table
from ngrpo.exploration.vocabulary import Vocabulary


@dataclass(frozen=True)
class NeighborMixing(Exploration):
    """With probability rho feed a mixture of the most likely token and its semantic neighbours.

        m_t ~ Bernoulli(rho)
        m_t = 0:  o_t ~ softmax(z_t / tau),  x_t = E[o_t]
        m_t = 1:  o_t = v* = argmax z_t,  C = {v*} + nb(v*),
                  alpha(c) = softmax over C of z_t / tau,  x_t = sum_{c in C} alpha(c) E[c]

    (N-GRPO, arXiv 2606.10768, eqs. 1-11.) nb(v) are the k - 1 nearest rows of the input embedding. The emitted
    and scored token of a mixed step is the anchor v*. Once the end token is emitted, and where the anchor is
    the end token, the step is an ordinary draw: the end of the reasoning is never mixed.

    The paper is followed where the released code differs: weights from the scaled logits, not from probabilities
    softmaxed again; neighbours in the input embedding, not in the output head; the anchor emitted, not the sampled
    token. The released 1.5B recipe has k = 2 with the rest as here, the 7B one rate 0.15.

    Attributes:
        rate: rho, the probability that a position is mixed; 0 gives the rollouts of `TokenSampling`.
        k: size of C, the anchor included; k = 1 feeds and emits the argmax on gated steps.
        metric: similarity of embedding rows: cosine | l2 | l1 | dot.
        end_token: text of the token after which nothing is mixed; None mixes to the end.
        refresh_every: rebuild the neighbour table after every so many weight updates; 0 keeps the first one.
        excluded_ids: further ids that must never become neighbours.
    """

    rate: float = 0.1
    k: int = 3
    metric: str = "cosine"
    end_token: str | None = "</think>"
    refresh_every: int = 0
    excluded_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "excluded_ids", tuple(self.excluded_ids))  # yaml gives a list
        if not 0.0 <= self.rate <= 1.0:
            raise SettingError(f"exploration.rate={self.rate} is not a probability; choose a value in [0, 1].")
        if self.k < 1:
            raise SettingError(f"exploration.k={self.k} leaves no anchor; choose k >= 1 (k counts the anchor).")
        if self.metric not in SIMILARITIES:
            known = ", ".join(SIMILARITIES)
            raise SettingError(f"exploration.metric={self.metric} is not known; choose one of {known}.")
        if self.refresh_every < 0:
            raise SettingError(f"exploration.refresh_every={self.refresh_every} is negative; 0 means never.")

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = k."""
        return self.k

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Builds the neighbour table [V, k], anchor first."""
        excluded = excluded_rows(embedding, vocabulary, self.excluded_ids)
        return {"neighbors": neighbor_table(embedding, self.k, self.metric, excluded)}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Mixes the gated rows, draws the others."""
        anchor = logits.argmax(-1)
        ids = ctx.tables["neighbors"][anchor].long()
        weights = logits.gather(-1, ids).softmax(-1)
        gate = ctx.uniform("gate") < self.rate
        mixed = gate & ~ctx.ended & ~ctx.is_end(anchor)
        return Step(torch.where(mixed, anchor, ctx.sample(logits)), mixed, ids, weights)
