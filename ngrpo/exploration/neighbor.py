"""Semantic neighbor mixing (N-GRPO)."""

from dataclasses import dataclass

from torch import Tensor

from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.neighbor_base import NeighborBase, check_ranges


@dataclass(frozen=True)
class NeighborMixing(NeighborBase):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges({"rate": self.rate}, {"k": self.k}, least=1)

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = k."""
        return self.k

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Mixes the gated rows, draws the others."""
        return self.mixed_step(logits, ctx, self.rate)
