"""The input embeddings that a rollout saw, rebuilt from tokens and record."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ngrpo.exploration.base import Embed, Exploration
from ngrpo.exploration.context import RowContext
from ngrpo.modeling.packing import PackedBatch
from ngrpo.types.records import Step


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
    table = embed.weight
    assert isinstance(table, Tensor)
    context = batch.context(batch.mixed_slots, table)
    return with_mixtures(inputs, batch.mixed_slots, batch.mixed_steps(), context, embed, exploration, parameters)


def with_mixtures(
    inputs: Tensor,
    slots: Tensor,
    steps: Step,
    context: RowContext,
    embed: Embed,
    exploration: Exploration,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """Returns inputs with what stood at the mixed slots.

    Args:
        inputs: of every slot, as if none were mixed; [N, d].
        slots: the mixed ones; int64 [M].
        steps: what was decided there, M rows.
        context: where they stand.
        embed: the scoring model's own input embedding.
        exploration: the strategy that made the record.
        parameters: what it has learned.

    Returns:
        [N, d].
    """
    # Learned parameters get a gradient, if only of zeros, from every microbatch: the ranks of FSDP must agree on which
    # have one.
    if len(slots) == 0 and not parameters:
        return inputs
    vectors = exploration.inputs(embed, steps, context, parameters).to(inputs.dtype)
    if exploration.detached:
        vectors = vectors.detach()
    return torch.index_copy(inputs, 0, slots, vectors)
