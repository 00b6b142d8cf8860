"""The input embeddings that a rollout saw, rebuilt from tokens and record."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ngrpo.exploration.base import Exploration
from ngrpo.modeling.packing import PackedBatch


def replay(embed: nn.Module, batch: PackedBatch, exploration: Exploration, parameters: Mapping[str, Tensor]) -> Tensor:
    """Returns the inputs of a pass over recorded rollouts.

    Gradient flows into E and the learned parameters through the mixed positions too, unless the strategy is detached.

    Args:
        embed: the scoring model's own input embedding module.
        batch: N tokens and their record.
        exploration: the strategy that made the record.
        parameters: what it has learned.

    Returns:
        [N, d].
    """
    inputs: Tensor = embed(batch.tokens)
    # Learned parameters get a gradient, if only of zeros, from every microbatch: the ranks of FSDP must agree on which
    # have one.
    if len(batch.mixed_slots) == 0 and not parameters:
        return inputs
    table = embed.weight
    assert isinstance(table, Tensor)
    context = batch.context(batch.mixed_slots, table)
    vectors = exploration.inputs(embed, batch.mixed_steps(), context, parameters).to(inputs.dtype)
    if exploration.detached:
        vectors = vectors.detach()
    return torch.index_copy(inputs, 0, batch.mixed_slots, vectors)
