"""Semantic neighbor mixing where the mixture is another vector than the anchor's."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.neighbor_base import NeighborBase, check_ranges
from ngrpo.exploration.vocabulary import Vocabulary

_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class SelectiveNeighborMixing(NeighborBase):
    """N-GRPO that mixes only where it changes what is fed: where cos(x_t, E[v*]) <= c.

        m_t ~ Bernoulli(rho), and 0 where the mixture is nearer to its anchor than c

    A variant of N-GRPO (arXiv 2606.10768) by this project. Most steps of a trained model are certain: nearly all weight
    is on the anchor, and a gated step changes the token (the anchor instead of a draw), not the vector. Here such a
    step is an ordinary draw, and a step is the anchor's only where its mixture is something else than the anchor. The
    rest is `NeighborMixing`, with the same draws: c = 1 gives it exactly. The cosine comes from the inner
    products of a token's row and its neighbours' rows, k x k numbers a token, which are made with the neighbour table.
    The defaults are not tuned.

    Attributes:
        rate: rho, the share of the positions that may be mixed; ``exploration/gated_fraction`` is what was.
        k: size of the mixture, the anchor included; 2 or more.
        max_cosine: c, in [-1, 1].
    """

    rate: float = 0.3
    k: int = 3
    max_cosine: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges({"rate": self.rate}, {"k": self.k}, least=2)
        if not -1.0 <= self.max_cosine <= 1.0:
            raise SettingError(
                f"exploration.max_cosine={self.max_cosine} is no cosine; choose a value in [-1, 1], 1 to mix every "
                "gated step."
            )

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = k."""
        return self.k

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Adds to the neighbour table the inner products of its rows; float32 [V, k, k]."""
        tables = super().prepare(embedding, vocabulary)
        return tables | {"products": inner_products(embedding, tables["neighbors"])}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Mixes the gated rows whose mixture differs enough, draws the others."""
        products = ctx.tables["products"]
        return self.mixed_step(
            logits, ctx, self.rate, where=lambda ids, weights: cosine(weights, products[ids[:, 0]]) <= self.max_cosine
        )


@torch.no_grad()
def inner_products(embedding: Tensor, ids: Tensor) -> Tensor:
    """Returns those of the embedding rows of each line of ids; [V, d], integer [R, K] -> float32 [R, K, K]."""
    made = []
    for block in torch.split(ids.long(), _BLOCK_ROWS):
        rows = embedding[block].float()
        made.append(rows @ rows.mT)
    return torch.cat(made)


def cosine(weights: Tensor, products: Tensor) -> Tensor:
    """Returns the cosine of a sum of rows and the first of them, from their inner products; at most 1.

    Args:
        weights: float32 [R, K].
        products: float32 [R, K, K].
    """
    along = (weights * products[:, 0]).sum(-1)
    square = (weights[:, :, None] * weights[:, None] * products).sum((-1, -2))
    size = (square * products[:, 0, 0]).clamp(min=torch.finfo(products.dtype).tiny)
    return (along * size.rsqrt()).clamp(max=1.0)
