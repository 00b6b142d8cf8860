"""The buffers of what the next forward feeds, at addresses that CUDA graphs keep."""

from typing import NamedTuple

import torch
from torch import Tensor


class BufferTensors(NamedTuple):
    """One entry a token of the forward.

    Attributes:
        mixed: feed the mixture instead of the token's embedding; bool [T].
        ids: int32 [T, K].
        weights: float32 [T, K].
        vectors: what to feed, for strategies whose vectors are no sums of rows; the embedding's dtype, [T, d]. Then ids
            and weights are not used.
    """

    mixed: Tensor
    ids: Tensor
    weights: Tensor
    vectors: Tensor | None


class MixingBuffers:
    """Persistent buffers, written before a forward and read inside it.

    Args:
        tokens: most tokens in a forward.
        width: K; at least 1.
        device: the worker's device.
        vectors_like: an embedding table, for buffers that hold vectors instead of mixtures.
    """

    def __init__(self, tokens: int, width: int, device: torch.device, vectors_like: Tensor | None = None) -> None:
        self.tensors = BufferTensors(
            mixed=torch.zeros(tokens, dtype=torch.bool, device=device),
            ids=torch.zeros(tokens, width, dtype=torch.int32, device=device),
            weights=torch.zeros(tokens, width, device=device),
            vectors=None if vectors_like is None else vectors_like.new_zeros(tokens, vectors_like.shape[-1]),
        )
        self.in_use = False

    def reset(self) -> None:
        """Zeroes all buffers."""
        for tensor in self.tensors:
            if tensor is not None:
                tensor.zero_()
        self.in_use = False

    def clear(self) -> None:
        """Feeds every token its own embedding."""
        if self.in_use:
            self.tensors.mixed.zero_()
            self.in_use = False
