"""Objects of all ranks on every rank."""

import io
import pickle
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")


def _alone() -> bool:
    return not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1


def gathered(own: T) -> list[T]:
    """Returns what each rank brought, by rank (a collective); alone, just the own object.

    Args:
        own: picklable and small: it travels as bytes.
    """
    if _alone():
        return [own]
    everyone: list[T] = [own] * distributed.get_world_size()
    distributed.all_gather_object(everyone, own)
    return everyone


def exchanged(parts: Sequence[T]) -> list[T]:
    """Sends each rank its part and returns what each rank sent here, by rank (a collective).

    Args:
        parts: one picklable object for each rank, tensors on the CPU; it travels as bytes, to its rank only.
    """
    if _alone():
        return list(parts)
    device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
    payloads = [torch.frombuffer(bytearray(packed(part)), dtype=torch.uint8) for part in parts]
    sizes = [len(payload) for payload in payloads]
    coming = [column[distributed.get_rank()] for column in gathered(sizes)]
    received = torch.empty(sum(coming), dtype=torch.uint8, device=device)
    distributed.all_to_all_single(received, torch.cat(payloads).to(device), coming, sizes)
    return [pickle.loads(payload.numpy().tobytes()) for payload in torch.split(received.cpu(), coming)]


class _Compact(pickle.Pickler):
    """Pickles of a view what it shows, not the whole storage behind it."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.untyped_storage().nbytes() > value.nbytes:
            return value.clone().__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        return NotImplemented


def packed(value: Any) -> bytes:
    """Returns an object as bytes for ``pickle.loads`` in another process of this run."""
    buffer = io.BytesIO()
    _Compact(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()
