"""The input embeddings that a rollout saw, rebuilt from tokens and record."""

import torch
from torch import Tensor, nn


def mix(embed: nn.Module, ids: Tensor, weights: Tensor) -> Tensor:
    """Returns sum_j w_j E[id_j], summed in float32 and cast to the embedding's dtype.

    Args:
        embed: the model's input embedding module, so that its scaling (Gemma's) applies.
        ids: int64 [M, K].
        weights: float32 [M, K].

    Returns:
        [M, d].
    """
    rows = embed(ids)
    return (weights[..., None] * rows.float()).sum(dim=-2).to(rows.dtype)


def replay(embed: nn.Module, tokens: Tensor, slots: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Returns the inputs of a pass over recorded rollouts; gradient flows into E through the mixture too.

    Args:
        embed: the scoring model's own input embedding module.
        tokens: int64 [N].
        slots: where a mixture stands instead of E[token]; int64 [M].
        ids: int64 [M, K].
        weights: float32 [M, K]; constants.

    Returns:
        [N, d].
    """
    inputs = embed(tokens)
    if len(slots) == 0:
        return inputs
    return torch.index_copy(inputs, 0, slots, mix(embed, ids, weights))
