"""Gaussian soft tokens over the k most likely tokens, with a sparse record."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, RowContext, Step, StepContext
from ngrpo.exploration.density import gaussian_log_density, table_rms
from ngrpo.exploration.gaussian import check_noise
from ngrpo.exploration.support import token_log_prob
from ngrpo.exploration.vocabulary import Vocabulary


@dataclass(frozen=True)
class GaussianTopK(Exploration):
    """Sparse STHT: x_t = sum_{j<k} w_j E[id_j] + sigma xi_t,  w = softmax(z_t / tau) of the k most likely.

    xi_t ~ N(0, I). The score is lp_t = -|x_t - h_t(theta)|^2 / (2 sigma^2), h_t(theta) the mean of the same k ids under
    the model that scores. It is `GaussianSoftTokens` (STHT, arXiv 2509.19170) with a truncated mean, so another method:
    the density is that of the truncated mean, in rollout and trainer alike. In exchange the record is sparse: ids,
    weights and sigma; xi_t is drawn again from the request key. x_t is rebuilt with the scoring model's E and a
    constant in the score, so over several optimiser steps it follows E.

    The released N-GRPO code has a strategy of this shape (``gaussian_embed_noise``) that takes sigma from each vector's
    own RMS, does not record the noise, and scores the sampled token; it is not reproduced.
    Shadow token and end of the reasoning: as `GaussianSoftTokens`.

    Attributes:
        k: ids in the mean.
        tau: temperature of the weights, on top of ``rollout.temperature``.
        scale: sigma over the RMS of the entries of E (padding rows excluded).
        end_token: text of the token that ends the soft tokens; None never ends them.
        refresh_every: measure the RMS again after every so many weight updates; 0 keeps the first.
    """

    k: int = 10
    tau: float = 0.5
    scale: float = 0.33
    end_token: str | None = "</think>"
    refresh_every: int = 0

    noisy = True
    reads_embedding = True

    def __post_init__(self) -> None:
        check_noise(self.tau, self.scale)
        if self.k < 1:
            raise SettingError(f"exploration.k={self.k} leaves no token to mix; choose 1 or more.")

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = k."""
        return self.k

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Measures sigma."""
        return {"sigma": self.scale * table_rms(embedding, vocabulary.size)}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Feeds a soft token until the reasoning ends."""
        largest, ids = logits.topk(self.k)
        weights = (largest / self.tau).softmax(-1)
        shadow = ids[:, 0]
        mixed = ~ctx.ended & ~ctx.is_end(shadow)
        token = torch.where(mixed, shadow, ctx.sample(logits))
        return Step(token, mixed, ids, weights, noise=ctx.tables["sigma"].expand(len(token)))

    def log_prob(self, logits: Tensor, step: Step, ctx: RowContext) -> Tensor:
        """The log-density of the vector where one was fed, else the token's log-prob."""
        assert step.noise is not None
        fed = self.inputs(lambda ids: ctx.embedding[ids], step, ctx, {})
        weights = (logits.gather(-1, step.ids) / self.tau).softmax(-1)
        mean = (weights[..., None] * ctx.embedding[step.ids].float()).sum(-2)
        density = gaussian_log_density(fed, mean, step.noise, step.mixed)
        return torch.where(step.mixed, density, token_log_prob(logits, step.token))
