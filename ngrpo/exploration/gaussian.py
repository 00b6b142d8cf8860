"""Gaussian soft tokens: the mean embedding plus noise (STHT)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, RowContext, Step, StepContext
from ngrpo.exploration.density import gaussian_log_density, table_rms
from ngrpo.exploration.support import token_log_prob
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.types.records import no_mixture


@dataclass(frozen=True)
class GaussianSoftTokens(Exploration):
    """STHT: x_t = h_t + sigma xi_t,  h_t = softmax(z_t / tau) E over the whole vocabulary,  xi_t ~ N(0, I).

    The score is lp_t = -|x_t - h_t(theta)|^2 / (2 sigma^2), h_t(theta) with the logits and the table of the model that
    scores and with gradient through both; its constant cancels (STHT, arXiv 2509.19170, eqs. 5, 6 and 14; no code was
    released). sigma = scale x RMS of the entries of E, over the rows that the tokenizer can produce (padding rows
    excluded); it is measured once, or at every refresh.

    x_t itself is recorded, in the engine's dtype and as it was fed: a mean over the vocabulary cannot be rebuilt. To
    the trainer it is a constant. The visible token is the argmax, a shadow that ends the reasoning; a step whose argmax
    is the end token is an ordinary draw, fed and scored as one, and so is everything after the end. "soft" has tau 0.5,
    "fuzzy" tau 0.0001. On-policy the score is about -d/2: ratios of it leave a clip range after small updates, and the
    paper itself uses neither ratio nor clip (`algo=rloo`).

    Attributes:
        tau: temperature of h_t, on top of ``rollout.temperature``.
        scale: sigma over the RMS.
        end_token: text of the token that ends the soft tokens; None never ends them.
        refresh_every: measure the RMS again after every so many weight updates; 0 keeps the first.
    """

    tau: float = 0.5
    scale: float = 0.33
    end_token: str | None = "</think>"
    refresh_every: int = 0

    dense = True
    noisy = True
    reads_embedding = True

    def __post_init__(self) -> None:
        check_noise(self.tau, self.scale)

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Measures sigma."""
        return {"sigma": self.scale * table_rms(embedding, vocabulary.size)}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Feeds a soft token until the reasoning ends."""
        shadow = logits.argmax(-1)
        mixed = ~ctx.ended & ~ctx.is_end(shadow)
        sigma = ctx.tables["sigma"].expand(len(shadow))
        noise = sigma[:, None] * ctx.noise(ctx.embedding.shape[-1])
        vector = (self._mean(logits, ctx.embedding) + noise).to(ctx.embedding.dtype)
        token = torch.where(mixed, shadow, ctx.sample(logits))
        return Step(token, mixed, *no_mixture(token), vector=vector, noise=sigma)

    def log_prob(self, logits: Tensor, step: Step, ctx: RowContext) -> Tensor:
        """The log-density of the vector where one was fed, else the token's log-prob."""
        assert step.vector is not None
        assert step.noise is not None
        density = gaussian_log_density(step.vector, self._mean(logits, ctx.embedding), step.noise, step.mixed)
        return torch.where(step.mixed, density, token_log_prob(logits, step.token))

    def _mean(self, logits: Tensor, embedding: Tensor) -> Tensor:
        """Returns h_t; float32 [R, d]."""
        with torch.autocast(logits.device.type, enabled=False):
            return (logits / self.tau).softmax(-1) @ embedding.float()


def check_noise(tau: float, scale: float) -> None:
    """Refuses settings that divide by zero."""
    for name, value in (("tau", tau), ("scale", scale)):
        if not value > 0:
            raise SettingError(f"exploration.{name}={value} must be positive; the paper has tau 0.5 and scale 0.33.")
