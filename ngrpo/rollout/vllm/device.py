"""The GPU of a worker: which one child processes see, and its view of host memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ngrpo.rollout.records.host_memory import DeviceView
from ngrpo.rollout.vllm.private import view_of_host_memory
from ngrpo.utils.environment_variable import environment_variable

_VARIABLE = "CUDA_VISIBLE_DEVICES"


@contextmanager
def visible_to_children(device: torch.device) -> Iterator[None]:
    """Makes this process's GPU the only one visible to processes that start meanwhile; does nothing for a CPU.

    vLLM takes the first GPU that it sees, which on every training process but the first is not the process's own.
    """
    if device.type != "cuda":
        yield
        return
    with environment_variable(_VARIABLE, visible(os.environ.get(_VARIABLE), device.index or 0)):
        yield


def device_view(device: torch.device) -> DeviceView | None:
    """Returns what makes the device's view of pinned host memory, None for a CPU."""
    if device.type != "cuda":
        return None
    return view_of_host_memory


def visible(before: str | None, index: int) -> str:
    """Returns the name of device ``index`` of this process, given its own list of visible ones."""
    return str(index) if before is None else before.split(",")[index]
