"""Ranks and world sizes of this process, and collectives on Python objects."""

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
    """Ranks of this process in data and tensor parallelism, with the sizes of both.

    Data ranks train on different sequences, the processes of a tensor-parallel group on the same: together they hold
    one model. Whatever is distributed or counted goes by data ranks, of which every tensor-parallel group is one; its
    first process makes rollouts for all of it.

    Attributes:
        data_rank: of this process's tensor-parallel group.
        data_size: number of data ranks.
        tensor_rank: of this process in its tensor-parallel group.
        tensor_size: processes in such a group.
        data_group: processes with this tensor rank, one of each tensor-parallel group; None for all processes.
        tensor_group: this process's tensor-parallel group; None for a group of one.
    """

    data_rank: int = 0
    data_size: int = 1
    tensor_rank: int = 0
    tensor_size: int = 1
    data_group: ProcessGroup | None = None
    tensor_group: ProcessGroup | None = None

    @classmethod
    def of(cls, mesh: DeviceMesh) -> "Ranks":
        """Takes the ranks of a mesh with the dimensions ``data_parallel`` and ``tensor_parallel``."""
        data, tensor = mesh["data_parallel"], mesh["tensor_parallel"]
        groups = (data.get_group(), tensor.get_group()) if tensor.size() > 1 else (None, None)
        return cls(data.get_local_rank(), data.size(), tensor.get_local_rank(), tensor.size(), *groups)

    @property
    def first(self) -> bool:
        """Whether this process makes the rollouts of its tensor-parallel group."""
        return self.tensor_rank == 0


SINGLE_PROCESS = Ranks()

_ranks_in_mesh: Ranks | None = None
"""Global in the process, as the groups of torch.distributed are."""


def set_device_mesh(mesh: DeviceMesh | None) -> None:
    """Sets the mesh that `ranks` goes by from now on; without one every process is a data rank."""
    global _ranks_in_mesh
    _ranks_in_mesh = None if mesh is None else Ranks.of(mesh)


def ranks() -> Ranks:
    """Returns this process's ranks."""
    if _ranks_in_mesh is not None:
        return _ranks_in_mesh
    size = world_size()
    return SINGLE_PROCESS if size == 1 else Ranks(distributed.get_rank(), size)


def world_size() -> int:
    """Returns the number of processes; 1 without a process group."""
    running = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if running else 1


def gathered(own: T) -> list[T]:
    """Returns the objects of all data ranks, by rank (a collective); see `torch.distributed.all_gather_object`.

    Args:
        own: picklable and small, since it is sent as bytes; the same on all processes of a tensor-parallel group.
    """
    here = ranks()
    return _gathered(own, here.data_size, here.data_group)


def gathered_everywhere(own: T) -> list[T]:
    """Returns the objects of all processes, by global rank (a collective); see `gathered`."""
    return _gathered(own, world_size(), None)


def _gathered(own: T, size: int, group: ProcessGroup | None) -> list[T]:
    if size == 1:
        return [own]
    everyone: list[T] = [own] * size
    distributed.all_gather_object(everyone, own, group)
    return everyone


def from_first(make: Callable[[], T]) -> T:
    """Makes an object on the first rank of each tensor-parallel group and broadcasts it to the group (a collective).

    Args:
        make: returns a picklable object, tensors on the CPU; it is sent as bytes.
    """
    here = ranks()
    own = [make()] if here.first else []
    if here.tensor_size > 1:
        payload = [serialize(made) for made in own] or [b""]
        distributed.broadcast_object_list(payload, group=here.tensor_group, group_src=0)
        own = own or [pickle.loads(payload[0])]
    return own[0]


def exchanged(parts: Sequence[T]) -> list[T]:
    """Sends each data rank its part and returns what each sent here, by rank (a collective): all-to-all for objects.

    Args:
        parts: one picklable object for each rank, tensors on the CPU; it is sent as bytes, to its rank only.
    """
    here = ranks()
    if here.data_size == 1:
        return list(parts)
    device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
    payloads = [torch.frombuffer(bytearray(serialize(part)), dtype=torch.uint8) for part in parts]
    sizes = [len(payload) for payload in payloads]
    incoming = [column[here.data_rank] for column in gathered(sizes)]
    received = torch.empty(sum(incoming), dtype=torch.uint8, device=device)
    distributed.all_to_all_single(received, torch.cat(payloads).to(device), incoming, sizes, here.data_group)
    return [pickle.loads(payload.numpy().tobytes()) for payload in torch.split(received.cpu(), incoming)]


class _Pickler(pickle.Pickler):
    """Pickles the numbers of a view and not the whole storage behind it."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.untyped_storage().nbytes() > value.nbytes:
            return value.clone().__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        return NotImplemented


def serialize(value: Any) -> bytes:
    """Returns an object as bytes for ``pickle.loads`` in another process of this run."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()
