"""Gumbel soft thinking with one-sided noise (Latent-GRPO)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, RowContext, Step, StepContext
from ngrpo.exploration.context import is_one_of
from ngrpo.exploration.density import gumbel_log_density
from ngrpo.exploration.support import token_log_prob
from ngrpo.exploration.token import keep_top_k, keep_top_p
from ngrpo.exploration.vocabulary import Vocabulary

_NOISE_BOUNDS = (-1.5, 3.0)
_LEAST_RESIDUAL = -60.0
"""Below it the exponential of the density would leave float32."""


@dataclass(frozen=True)
class LatentGumbel(Exploration):
    """Latent-GRPO: x_t = sum_{i in K} y_i E[i],  y = softmax(g / tau_g),  g_i = log p_i + eps_i,  eps_i in [0, 4.5].

    eps is a Gumbel draw, clamped to [-1.5, 3] and moved by 1.5. K are the k largest g of the top-p set of softmax(z_t),
    or of its top k where those are more; the visible token is the first of them that is no end token. The action is g,
    and its score the mean over K of the density of the noise, with p(theta) over the whole vocabulary:

        lp_t = 1 / k sum_{i in K} [ -d_i - exp(-d_i) ],   d_i = g_i - log p_i(theta)

    (Latent-GRPO, arXiv 2604.27998, read in code and abstract.) Moving eps changes neither K nor y nor the token: what
    is one-sided is the update. On the rollout's own policy d >= 0, so that every slope (1 - exp(-d)) / k is, where
    noise of both signs has negative ones too. Off it, where a step pushes lp_t down and d < 0, the slope becomes
    exp(d) - 1: bounded by 1, of the same sign. The code decides by the advantage, which is the same as long as the
    surrogate is all that acts on lp_t.

    The latent steps end where the end token is the most likely one; it is emitted there without noise, fed plainly and
    scored by its log-prob. Before, it may be in K and in a mixture. After it tokens are drawn as usual. The paper
    starts from a model that was trained on latent steps. The code has temperature 1 in latent steps; here it is
    ``rollout.temperature`` throughout. Goes with ``algo=latent_grpo``.

    Attributes:
        top_k: k, ids in a mixture.
        top_p: mass of the set that K is chosen from; 1.0 is the vocabulary.
        tau_g: temperature of y.
        noise: factor of eps.
        one_sided: move the noise; False leaves it on both sides.
        bounded: replace the slopes of d < 0.
        end_token: text of the token that ends the latent steps; None never ends them.
    """

    top_k: int = 10
    top_p: float = 0.95
    tau_g: float = 1.0
    noise: float = 1.0
    one_sided: bool = True
    bounded: bool = True
    end_token: str | None = "</think>"

    scored = True
    detached = True

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise SettingError(f"exploration.top_k={self.top_k} leaves no token to mix; choose 1 or more.")
        if not 0.0 < self.top_p <= 1.0:
            raise SettingError(f"exploration.top_p={self.top_p} is not in (0, 1]; use 1.0 for the whole vocabulary.")
        for name in ("tau_g", "noise"):
            if not getattr(self, name) > 0:
                raise SettingError(f"exploration.{name}={getattr(self, name)} must be positive; the code has 1.0.")

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = top_k."""
        return self.top_k

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Needs no tables; a mixture must fit into the vocabulary."""
        if self.top_k > len(embedding):
            raise SettingError(
                f"exploration.top_k={self.top_k} exceeds the {len(embedding)} ids of the vocabulary; lower it."
            )
        return {}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Perturbs and mixes until the end token is the most likely one; ids by falling g."""
        likeliest = logits.argmax(-1)
        ending = ctx.is_end(likeliest)
        free = logits
        if self.top_p < 1.0:
            free = torch.maximum(keep_top_k(logits, self.top_k), keep_top_p(logits, self.top_p))
        candidates = torch.arange(logits.shape[-1], device=logits.device)[None, :]
        drawn = ctx.gumbel("token", candidates).clamp(*_NOISE_BOUNDS)
        eps = self.noise * (drawn - _NOISE_BOUNDS[0] if self.one_sided else drawn)
        scores, ids = (logits.log_softmax(-1) + eps).masked_fill(free == -torch.inf, -torch.inf).topk(self.top_k)
        plain = ~is_one_of(ids, ctx.end_ids)
        first = ids.gather(-1, plain.int().argmax(-1, keepdim=True))[:, 0]
        latent = torch.where(ending | ~plain.any(-1), likeliest, first)
        token = torch.where(ctx.ended, ctx.sample(logits), latent)
        return Step(token, ~ctx.ended & ~ending, ids, (scores / self.tau_g).softmax(-1), scores=scores)

    def log_prob(self, logits: Tensor, step: Step, ctx: RowContext) -> Tensor:
        """The mean log-density of g where it was drawn, else the token's log-prob."""
        assert step.scores is not None
        residual = step.scores - logits.log_softmax(-1).gather(-1, step.ids)
        # Zeros elsewhere: infinities would turn the gradient of the unused branch into NaN.
        residual = torch.where(step.mixed[:, None], residual, 0.0).clamp(min=_LEAST_RESIDUAL)
        density = bounded_density(residual) if self.bounded and residual.requires_grad else gumbel_log_density(residual)
        return torch.where(step.mixed, density.mean(-1), token_log_prob(logits, step.token))


def bounded_density(residual: Tensor) -> Tensor:
    """The log-density of the standard Gumbel distribution; where d < 0 is to grow, its slope is ``1 - exp(d)``.

    That is where a loss has a positive gradient by the density: the sign of a token's gradient is that of minus its
    advantage.
    """
    density: Tensor = _BoundedDensity.apply(residual)  # type: ignore[no-untyped-call]
    return density


class _BoundedDensity(torch.autograd.Function):
    """See `bounded_density`."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor) -> Tensor:
        ctx.save_for_backward(residual)
        return gumbel_log_density(residual)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (residual,) = ctx.saved_tensors
        slope = torch.where((gradient > 0) & (residual < 0), -residual.expm1(), (-residual).expm1())
        return gradient * slope
