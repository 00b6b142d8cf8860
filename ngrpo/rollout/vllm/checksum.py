"""Checksums of tensors, over the bits of their elements and their order."""

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of an element."""
_WORD = 4
_CHUNK = 1 << 18
_CHUNKS_AT_ONCE = 16
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)
"""2^64 over the golden ratio, as int64 has it."""


def bits(tensor: Tensor) -> Tensor:
    """Returns a tensor's elements as integers of as many bytes, one after the other; signs and NaNs are kept."""
    return tensor.detach().contiguous().view(INTEGERS[tensor.element_size()]).flatten()


def checksum(tensor: Tensor) -> int:
    """Returns sum_i w_i b_i mod 2^64 as int64 has it, b_i the bits of 4 bytes each and w_i odd and irregular.

    It sees signs, NaN and the order of elements, and is the same on every device; shape and dtype do not enter, nor do
    zeros at the end.
    """
    total = 0
    for number, part in enumerate(_chunk_sums(_words(tensor))):
        total += part * (2 * number * (number + 7) + 1)  # odd, so that chunks cannot be swapped either
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)


def _chunk_sums(words: Tensor) -> Iterator[int]:
    """Yields sum_i w_i b_i of every chunk: one at a time on a CPU, more where each is waited for."""
    weights = _weights(words.device)
    for block in torch.split(words, _CHUNK * (1 if words.device.type == "cpu" else _CHUNKS_AT_ONCE)):
        rows = len(block) // _CHUNK
        yield from (block[: rows * _CHUNK].view(rows, _CHUNK) * weights).sum(1).tolist()
        if rest := len(block) % _CHUNK:
            yield int((block[-rest:] * weights[:rest]).sum())


def _words(tensor: Tensor) -> Tensor:
    """Returns a tensor's bytes as int32, with zeros at the end where they do not fill the last one."""
    octets = bits(tensor).view(torch.uint8)
    if octets.nbytes % _WORD:
        octets = pad(octets, (0, -octets.nbytes % _WORD))
    if octets.storage_offset() % _WORD:
        octets = octets.clone()
    return octets.view(torch.int32)


def _weights(device: torch.device) -> Tensor:
    """Returns w of a chunk: multiplications and shifts mod 2^64, lowest bit set; int64 [_CHUNK].

    They are kept on a CPU only: what is made while vLLM loads a model on a GPU lies in memory that a sleep takes away.
    """
    return _kept_weights() if device.type == "cpu" else _made_weights(device)


def _made_weights(device: torch.device) -> Tensor:
    w = torch.arange(1, _CHUNK + 1, device=device)
    for _ in range(2):
        w = w * _ODD
        w = w ^ (w >> 29)
    return w | 1


@lru_cache(maxsize=1)
def _kept_weights() -> Tensor:
    return _made_weights(torch.device("cpu"))
