"""Checksums of tensors, over the bits of their elements and their order."""

from collections.abc import Iterable, Sequence
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


def checksums(tensors: Sequence[Tensor]) -> list[int]:
    """Returns the checksum of each tensor: sum_i w_i b_i mod 2^64, as int64 has it.

    The b_i are the bits of 4 bytes each, the w_i odd and irregular. It sees signs, NaN and the order of elements, and
    is the same on every device; shape and dtype do not enter, nor do zeros at the end. A device is waited for once,
    however many tensors lie there.
    """
    weights = {device: _weights(device) for device in {tensor.device for tensor in tensors}}
    longest = max((tensor.nbytes for tensor in tensors), default=0)
    of_chunks = {device: _chunk_weights(-(-longest // (_WORD * _CHUNK)), device) for device in weights}
    return read_together([_sum(_words(one), weights[one.device], of_chunks[one.device]) for one in tensors])


def named_checksums(tensors: Iterable[tuple[str, Tensor]]) -> list[tuple[str, int]]:
    """Returns the checksum beside each name, as `checksums` makes them; names may come twice."""
    names, values = [], []
    for name, tensor in tensors:
        names.append(name)
        values.append(tensor)
    return list(zip(names, checksums(values), strict=True))


def read_together(values: Sequence[Tensor]) -> list[int]:
    """Returns the values of tensors of one element each, after one wait for each device."""
    read: dict[int, int] = {}
    for device in {value.device for value in values}:
        here = [number for number, value in enumerate(values) if value.device == device]
        read |= zip(here, torch.stack([values[number].view(()) for number in here]).tolist(), strict=True)
    return [read[number] for number in range(len(values))]


def _sum(words: Tensor, weights: Tensor, of_chunks: Tensor) -> Tensor:
    """Returns the weighted sum of words, int32 [N]; int64 []."""
    if len(words) <= _CHUNK:
        return (words * weights[: len(words)]).sum()
    sums = []
    for block in torch.split(words, _CHUNK * (1 if words.device.type == "cpu" else _CHUNKS_AT_ONCE)):
        rows = len(block) // _CHUNK
        sums.append((block[: rows * _CHUNK].view(rows, _CHUNK) * weights).sum(1))
        if rest := len(block) % _CHUNK:
            sums.append((block[-rest:] * weights[:rest]).sum().view(1))
    chunks = torch.cat(sums)
    return (chunks * of_chunks[: len(chunks)]).sum()


def _chunk_weights(chunks: int, device: torch.device) -> Tensor:
    """Returns the weight of each chunk, odd, so that chunks cannot be swapped either; int64 [chunks], 1 at first."""
    number = torch.arange(chunks, device=device)
    return 2 * number * (number + 7) + 1


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
