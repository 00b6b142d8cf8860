"""An empty record of a strategy, and empty supports, to be filled."""

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.types.records import Record
from ngrpo.types.support import NO_ID


def empty_record(
    strategy: Exploration, leading: tuple[int, ...], device: torch.device, vectors: Tensor | None
) -> Record:
    """Returns zeros for the channels that a strategy fills.

    Args:
        strategy: says which they are.
        leading: the leading dimensions.
        device: of all channels but the vectors.
        vectors: the channel of vectors; [*leading, d], None unless the strategy is dense.
    """
    ids = torch.zeros(*leading, strategy.width, dtype=torch.int32, device=device)
    weights = torch.zeros(ids.shape, dtype=torch.float32, device=device)
    return Record(
        ids=ids,
        weights=weights,
        scores=torch.zeros_like(weights) if strategy.scored else None,
        vector=vectors,
        noise=torch.zeros(leading, dtype=torch.float32, device=device) if strategy.noisy else None,
    )


def empty_support(strategy: Exploration, leading: tuple[int, ...], device: torch.device) -> Tensor | None:
    """Returns supports of no id, which stand for the whole vocabulary, int32 [*leading, C]; None if it has none."""
    if not strategy.support:
        return None
    return torch.full((*leading, strategy.support), NO_ID, dtype=torch.int32, device=device)
