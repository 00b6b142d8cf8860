"""This process's place among all, and objects of other ranks."""

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Where this process stands: data ranks train on different sequences, those of a tensor group on the same.

    A tensor group holds one model between its ranks. Whatever is dealt out or counted goes by data ranks, of which
    every tensor group is one; its first rank makes rollouts for all of it.

    Attributes:
        data_rank: number of this process's tensor group.
        data_size: of them.
        tensor_rank: number of this process in its group.
        tensor_size: processes in a group.
        data_group: of the processes with this tensor rank, one of each tensor group; None for all processes.
        tensor_group: this process's; None for itself alone.
    """

    data_rank: int = 0
    data_size: int = 1
    tensor_rank: int = 0
    tensor_size: int = 1
    data_group: ProcessGroup | None = None
    tensor_group: ProcessGroup | None = None

    @classmethod
    def of(cls, mesh: DeviceMesh) -> "Ranks":
        """Takes the places of a mesh with the dimensions ``data_parallel`` and ``tensor_parallel``."""
        data, tensor = mesh["data_parallel"], mesh["tensor_parallel"]
        groups = (data.get_group(), tensor.get_group()) if tensor.size() > 1 else (None, None)
        return cls(data.get_local_rank(), data.size(), tensor.get_local_rank(), tensor.size(), *groups)

    @property
    def first(self) -> bool:
        """Whether this process makes the rollouts of its tensor group."""
        return self.tensor_rank == 0


ALONE = Ranks()
"""A single process."""

_arranged: Ranks | None = None
"""Of the process, as torch.distributed's groups are."""


def arrange(mesh: DeviceMesh | None) -> None:
    """Sets what `ranks` says from now on; without a mesh every process is a data rank."""
    global _arranged
    _arranged = None if mesh is None else Ranks.of(mesh)


def ranks() -> Ranks:
    """Returns this process's place."""
    if _arranged is not None:
        return _arranged
    return ALONE if _alone() else Ranks(distributed.get_rank(), distributed.get_world_size())


def _alone() -> bool:
    return not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1


def gathered(own: T) -> list[T]:
    """Returns what each data rank brought, by rank (a collective); alone, just the own object.

    Args:
        own: picklable and small: it travels as bytes; the same on all ranks of a tensor group.
    """
    place = ranks()
    return _gathered(own, place.data_size, place.data_group)


def gathered_everywhere(own: T) -> list[T]:
    """Returns what each process brought, by its global rank (a collective); see `gathered`."""
    return _gathered(own, 1 if _alone() else distributed.get_world_size(), None)


def _gathered(own: T, size: int, group: ProcessGroup | None) -> list[T]:
    if size == 1:
        return [own]
    everyone: list[T] = [own] * size
    distributed.all_gather_object(everyone, own, group)
    return everyone


def from_first(make: Callable[[], T]) -> T:
    """Makes something on the first rank of each tensor group, and returns it on all of the group (a collective).

    Args:
        make: returns something picklable, tensors on the CPU; it travels as bytes.
    """
    place = ranks()
    own = [make()] if place.first else []
    if place.tensor_size > 1:
        carried = [packed(made) for made in own] or [b""]
        distributed.broadcast_object_list(carried, group=place.tensor_group, group_src=0)
        own = own or [pickle.loads(carried[0])]
    return own[0]


def exchanged(parts: Sequence[T]) -> list[T]:
    """Sends each data rank its part and returns what each sent here, by rank (a collective).

    Args:
        parts: one picklable object for each rank, tensors on the CPU; it travels as bytes, to its rank only.
    """
    place = ranks()
    if place.data_size == 1:
        return list(parts)
    device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
    payloads = [torch.frombuffer(bytearray(packed(part)), dtype=torch.uint8) for part in parts]
    sizes = [len(payload) for payload in payloads]
    coming = [column[place.data_rank] for column in gathered(sizes)]
    received = torch.empty(sum(coming), dtype=torch.uint8, device=device)
    distributed.all_to_all_single(received, torch.cat(payloads).to(device), coming, sizes, place.data_group)
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
