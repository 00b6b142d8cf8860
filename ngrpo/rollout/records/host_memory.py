"""Pinned host memory that kernels of the device read and write."""

from collections.abc import Callable

import torch
from torch import Tensor

DeviceView = Callable[[Tensor], Tensor]
"""Returns a device's view of a tensor in pinned host memory."""


class HostTensor:
    """A tensor in pinned host memory with a view for kernels of the device; on a CPU the same tensor twice.

    Every write of a kernel crosses the bus: for a few rows a step that costs microseconds, and gigabytes of device
    memory are spared. What the host reads is valid once the device is synchronised.

    Args:
        shape: of the tensor.
        dtype: of the tensor.
        device_view: makes the view; None on a CPU.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device_view: DeviceView | None) -> None:
        self.on_host = torch.empty(shape, dtype=dtype, pin_memory=device_view is not None)
        self.on_device = self.on_host if device_view is None else device_view(self.on_host)
