"""The trainer's side of a weight transfer: how tensors get to vLLM's workers, one class a way."""

import pickle
from collections.abc import Callable
from itertools import accumulate
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Protocol

import torch
from torch import Tensor

from ngrpo.utils.grouped import grouped

Bucket = list[tuple[str, Tensor]]
"""Tensors by their transformers names, of one dtype or several."""
Update = Callable[[dict[str, Any] | list[dict[str, Any]]], None]
"""Vllm's ``update_weights``: arguments of the worker's receiver, or of each worker's; returns when they have loaded."""

_SEGMENT_BYTES = 64 << 20
_ALIGNMENT = 64


class WeightSender(Protocol):
    """One way to send tensors.

    Attributes:
        backend: name of the receiver at its other end, see `weight_receivers`.
    """

    backend: str

    def send(self, bucket: Bucket, update: Update) -> None:
        """Sends tensors, and lets go of them when every worker has loaded them."""


class ByReference:
    """To a worker in this process, which copies from the trainer's own tensors."""

    backend = "ngrpo_reference"

    def send(self, bucket: Bucket, update: Update) -> None:
        """Sends tensors."""
        update({"weights": bucket})


class BySharedMemory:
    """To workers in other processes on a CPU, through a segment of shared memory that lives as long as the call.

    It is filled again and again: the first touch of a page costs many times the copy.
    """

    backend = "ngrpo_shared_memory"

    def send(self, bucket: Bucket, update: Update) -> None:
        """Sends tensors."""
        memory = SharedMemory(create=True, size=max(_SEGMENT_BYTES, *(_room(tensor) for _, tensor in bucket)))
        try:
            for part in grouped(bucket, memory.size, lambda named: _room(named[1])):
                offsets = [0, *accumulate(_room(tensor) for _, tensor in part)][:-1]
                for (_, tensor), offset in zip(part, offsets, strict=True):
                    shared_view(memory, tensor.dtype, tensor.shape, offset).copy_(tensor)
                update(
                    {
                        "memory": memory.name,
                        "names": [name for name, _ in part],
                        "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in part],
                        "shapes": [list(tensor.shape) for _, tensor in part],
                        "offsets": offsets,
                    }
                )
        finally:
            memory.close()
            memory.unlink()


class ByCudaIpc:
    """To workers in other processes on GPUs, which open the trainer's tensors by vLLM's own CUDA IPC backend.

    Args:
        workers: their number; each opens handles of its own, since PyTorch counts who lets go of them.
    """

    backend = "ngrpo_cuda_ipc"

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def send(self, bucket: Bucket, update: Update) -> None:
        """Sends tensors."""
        from ngrpo.rollout.vllm.cuda_ipc import exported

        here = [(name, tensor.to("cuda").contiguous()) for name, tensor in bucket]
        update([{"exported": pickle.dumps(exported(here))} for _ in range(self._workers)])
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]


def choose_sender(workers: int | None) -> WeightSender:
    """Returns the way to ``workers`` in other processes; None is the worker of this process."""
    if workers is None:
        return ByReference()
    return ByCudaIpc(workers) if torch.cuda.is_available() else BySharedMemory()


def _room(tensor: Tensor) -> int:
    """Returns the bytes of a tensor and of the gap after it."""
    return -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT


def shared_view(memory: SharedMemory, dtype: torch.dtype, shape: torch.Size | list[int], offset: int) -> Tensor:
    """Returns a tensor that lies at ``offset`` bytes in shared memory, valid until that is closed."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory.buf, dtype=dtype, count=count, offset=offset).view(shape)
