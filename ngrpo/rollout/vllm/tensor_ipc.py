"""Tensor IPC: tensors opened by another process without a copy, in shared memory on a CPU and by CUDA IPC on a GPU."""

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

Bucket = list[tuple[str, Tensor]]

_DEVICE = 6
"""Index of the device number among the arguments of PyTorch's ``rebuild_cuda_tensor``."""


def serialize_handles(bucket: Bucket) -> bytes:
    """Returns handles of named tensors, which must live until the other process is done; to be open_handles once."""
    reduced = [(name, reduce_tensor(tensor)) for name, tensor in bucket]  # type: ignore[no-untyped-call]
    return bytes(ForkingPickler.dumps(reduced))


def open_handles(handles: bytes) -> Bucket:
    """Opens the tensors of `serialize_handles` on the current device, whose number may differ in both processes."""
    return [(name, _rebuild(*reduced)) for name, reduced in pickle.loads(handles)]


def _rebuild(function: Any, arguments: tuple[Any, ...]) -> Tensor:
    if function is rebuild_cuda_tensor:
        arguments = (*arguments[:_DEVICE], torch.cuda.current_device(), *arguments[_DEVICE + 1 :])
    tensor: Tensor = function(*arguments)
    return tensor
