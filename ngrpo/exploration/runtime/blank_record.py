"""Room for the records of a strategy."""

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.types.records import Record


def blank_record(
    strategy: Exploration, places: tuple[int, ...], device: torch.device, vectors: Tensor | None
) -> Record:
    """Returns zeros for the channels that a strategy fills.

    Args:
        strategy: says which they are.
        places: the leading dimensions.
        device: of all channels but the vectors.
        vectors: room for the vectors; [*places, d], None unless the strategy is dense.
    """
    ids = torch.zeros(*places, strategy.width, dtype=torch.int32, device=device)
    weights = torch.zeros(ids.shape, dtype=torch.float32, device=device)
    return Record(
        ids=ids,
        weights=weights,
        scores=torch.zeros_like(weights) if strategy.scored else None,
        vector=vectors,
        noise=torch.zeros(places, dtype=torch.float32, device=device) if strategy.noisy else None,
    )
