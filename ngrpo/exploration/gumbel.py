"""Gumbel soft thinking (SofT-GRPO)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, RowContext, Step, StepContext
from ngrpo.exploration.density import gumbel_log_density
from ngrpo.exploration.support import token_log_prob
from ngrpo.exploration.token import mass_before
from ngrpo.utils.sorted_rows import sorted_rows

_RESIDUAL_BOUNDS = (-1.5, 3.0)
_RARE = -3.0
"""The released density excludes ids whose log-prob is below."""


@dataclass(frozen=True)
class GumbelSoftThinking(Exploration):
    """SofT-GRPO: x_t = sum_{i in K} y_i E[i],  y = softmax(g / tau_g),  g_i = log p_i + eps_i,  eps_i ~ Gumbel(0, 1).

    K is the top-k of softmax(z_t), then the top-p of those, p renormalised on it. The visible token is argmax g: an
    ordinary draw from p on K (SofT-GRPO, arXiv 2511.06411, eq. 9). The action is g, and its score the density of the
    noise, with p(theta) renormalised on the recorded K (eqs. 11 and 12):

        lp_t = sum_{i in K} [ -(g_i - log p_i) - exp(-(g_i - log p_i)) ]

    The end token ends the soft tokens: where it is drawn, y is one-hot so that E[o_t] is fed, and g is still the scored
    action. After it tokens are drawn from the whole softmax and scored by it. The paper's code draws them from the
    truncated one and scores the whole; that bias is not reproduced.

    The released code differs: it clamps eps to [-1.5, 3] when it draws, which is not done here, and its density is
    ``masked_mean``: residuals clamped to [-1.5, 3], log(p + 1e-6), the mean over ids of log p > -3. There K is all k
    ids, since those that top-p removed are recorded with log 1e-6; here they stay removed (score -inf). It detaches the
    input vectors, and so does this.

    Attributes:
        top_k: most ids in K.
        top_p: mass of K within the top-k; 1.0 keeps all.
        tau_g: temperature of y.
        density: sum (paper) | masked_mean (released code).
        end_token: text of the token that ends the soft tokens; None never ends them.
    """

    top_k: int = 5
    top_p: float = 0.95
    tau_g: float = 0.1
    density: str = "sum"
    end_token: str | None = "</think>"

    scored = True
    detached = True

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise SettingError(f"exploration.top_k={self.top_k} leaves no token to mix; choose 1 or more.")
        if not 0.0 < self.top_p <= 1.0:
            raise SettingError(f"exploration.top_p={self.top_p} is not in (0, 1]; use 1.0 to keep all of the top-k.")
        if not self.tau_g > 0:
            raise SettingError(f"exploration.tau_g={self.tau_g} cannot divide; the paper has 0.1.")
        if self.density not in DENSITIES:
            known = ", ".join(DENSITIES)
            raise SettingError(f"exploration.density={self.density} is not known; choose one of {known}.")

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = top_k."""
        return self.top_k

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Perturbs and mixes until the reasoning ends; the visible token comes first in the record."""
        largest, ids = logits.topk(self.top_k)
        log_probs = self._truncated(largest).log_softmax(-1)
        scores, order = sorted_rows(log_probs + ctx.gumbel("token", ids), descending=True)
        ids = ids.gather(-1, order)
        drawn = ids[:, 0]
        one_hot = torch.zeros_like(scores)
        one_hot[:, 0] = 1.0
        weights = torch.where(ctx.is_end(drawn)[:, None], one_hot, (scores / self.tau_g).softmax(-1))
        token = torch.where(ctx.ended, ctx.sample(logits), drawn)
        return Step(token, ~ctx.ended, ids, weights, scores=scores)

    def _truncated(self, largest: Tensor) -> Tensor:
        """Sets the logits [R, K], largest first, that are outside of top-p to -inf; none of them at 1.0."""
        if self.top_p == 1.0:  # for which sums of probabilities are too coarse
            return largest
        return largest.masked_fill(mass_before(largest) >= self.top_p, -torch.inf)

    def log_prob(self, logits: Tensor, step: Step, ctx: RowContext) -> Tensor:
        """The log-density of g where it was drawn, else the token's log-prob."""
        assert step.scores is not None
        kept = step.scores > -torch.inf
        log_probs = logits.gather(-1, step.ids).masked_fill(~kept, -torch.inf).log_softmax(-1)
        # Zeros where nothing is kept: infinities would turn the gradient of the unused branch into NaN.
        scores, log_probs = (values.masked_fill(~kept, 0.0) for values in (step.scores, log_probs))
        density = DENSITIES[self.density](scores, log_probs, kept)
        return torch.where(step.mixed, density, token_log_prob(logits, step.token))


def summed(scores: Tensor, log_probs: Tensor, kept: Tensor) -> Tensor:
    """The paper's density of g; [R, K] each, ``kept`` marks K -> [R]."""
    return gumbel_log_density(scores - log_probs).where(kept, 0.0).sum(-1)


def masked_mean(scores: Tensor, log_probs: Tensor, kept: Tensor) -> Tensor:
    """The released code's; same arguments."""
    floored = torch.log(log_probs.exp() + 1e-6)
    density = gumbel_log_density((scores - floored).clamp(*_RESIDUAL_BOUNDS))
    counted = kept & (floored > _RARE)
    return density.where(counted, 0.0).sum(-1) / counted.sum(-1).clamp(min=1)


DENSITIES = {"sum": summed, "masked_mean": masked_mean}
