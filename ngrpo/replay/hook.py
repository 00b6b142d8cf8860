"""A model's input embedding that replays records while a block runs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.context import RowContext
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.replay import with_mixtures
from ngrpo.replay.records import MixedSlots, RecordTensors
from ngrpo.types.records import Step

_mixed: dict[int, MixedSlots] = {}
"""What embeddings replay now, by their ids. Of tensors that hang on a module, the compiler makes a graph a size."""


@contextmanager
def replayed(
    model: Any,
    records: RecordTensors,
    strategy: Exploration | None = None,
    parameters: Mapping[str, Tensor] | None = None,
) -> Iterator[None]:
    """Within, ``model(input_ids=...)`` sees the inputs that the rollouts saw, and gradient flows through them.

    Each call takes ``input_ids`` of the records' shape [B, T], any number of times. The embedding's ``forward`` is
    replaced, and not hooked, so that whatever gathers its weights (FSDP2) or changes its output (adapters) runs around
    it. A backward pass that makes the embedding again, because the whole model lies in one activation checkpoint,
    belongs into the block too; checkpointed decoder layers do not care. In a function that `torch.compile` compiles,
    other tokens than the records' give NaN instead of an error.

    Args:
        model: with `get_input_embeddings`; what wraps it (DDP, FSDP, a compiled module) may be what is called.
        records: of the rows that are passed in.
        strategy: what made them, if it makes its inputs in its own way, learns parameters or is detached; None for
            sums of rows, with or without noise.
        parameters: what it has learned.

    Raises:
        ValueError: rows of another shape, or with other tokens at the mixed slots, were passed in, or the model is
            inside another such block.
    """
    embed = model.get_input_embeddings()
    replaced = vars(embed).get("forward")  # by somebody else, who gets it back
    replacing = _ReplayingForward(embed, embed.forward, records, strategy or TokenSampling(), parameters or {})
    if replacing.number in _mixed:
        raise ValueError("the model replays other records already; leave that block first")
    # Found here: a compiled forward has no sizes that depend on values.
    _mixed[replacing.number] = records.mixed()
    embed.forward = replacing.call
    try:
        yield
    finally:
        del _mixed[replacing.number]
        if replaced is None:
            del embed.forward
        else:
            embed.forward = replaced


class _ReplayingForward:
    """The forward of an input embedding, with mixtures where there are any."""

    def __init__(
        self,
        embed: nn.Module,
        plain: Callable[[Tensor], Tensor],
        records: RecordTensors,
        strategy: Exploration,
        parameters: Mapping[str, Tensor],
    ) -> None:
        self.embed, self.plain, self.strategy, self.parameters = embed, plain, strategy, parameters
        self.shape, self.number = tuple(records.tokens.shape), id(embed)

    def call(self, input_ids: Tensor) -> Tensor:
        """Returns [B, T, d] of [B, T]."""
        if tuple(input_ids.shape) != self.shape:
            raise ValueError(
                f"input_ids of shape {list(input_ids.shape)} were passed to a model that replays records of shape "
                f"{list(self.shape)}"
            )
        inputs, device, mixed = self.plain(input_ids), input_ids.device, _mixed[self.number]
        slots, keys, positions = (tensor.to(device) for tensor in (mixed.slots, mixed.keys, mixed.positions))
        step = Step._make(None if channel is None else channel.to(device) for channel in mixed.step)
        same = input_ids.flatten()[slots] == step.token
        if torch.compiler.is_compiling():
            step = step._replace(weights=torch.where(same[:, None], step.weights, torch.nan))
        elif not bool(same.all()):
            raise ValueError("input_ids hold other tokens than the rollouts at the mixed slots; align both")
        context = RowContext(keys, positions, self.embed.weight)  # type: ignore[arg-type]
        flat = with_mixtures(inputs.flatten(0, 1), slots, step, context, self.plain, self.strategy, self.parameters)
        return flat.view(inputs.shape)
