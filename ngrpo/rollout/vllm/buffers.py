"""What the next forward feeds, at addresses that CUDA graphs keep."""

from typing import NamedTuple

import torch
from torch import Tensor


class BufferTensors(NamedTuple):
    """One place a token of the forward.

    Attributes:
        mixed: feed the mixture instead of the token's embedding; bool [T].
        ids: int32 [T, K].
        weights: float32 [T, K].
    """

    mixed: Tensor
    ids: Tensor
    weights: Tensor


class MixBuffers:
    """Persistent buffers, written before a forward and read inside it.

    Args:
        tokens: most tokens in a forward.
        width: K; at least 1.
        device: the worker's device.
    """

    def __init__(self, tokens: int, width: int, device: torch.device) -> None:
        self.tensors = BufferTensors(
            mixed=torch.zeros(tokens, dtype=torch.bool, device=device),
            ids=torch.zeros(tokens, width, dtype=torch.int32, device=device),
            weights=torch.zeros(tokens, width, device=device),
        )
        self.in_use = False

    def reset(self) -> None:
        """Fills the buffers anew."""
        for tensor in self.tensors:
            tensor.zero_()
        self.in_use = False

    def clear(self) -> None:
        """Makes every token plain."""
        if self.in_use:
            self.tensors.mixed.zero_()
            self.in_use = False
