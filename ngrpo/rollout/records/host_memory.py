"""Pinned host memory that kernels of the device read and write."""

import torch


class HostTensor:
    """A tensor in pinned host memory with a view for kernels of the device; on a CPU the same tensor twice.

    Every write of a kernel crosses the bus: for a few rows a step that costs microseconds, and gigabytes of device
    memory are spared. What the host reads is valid once the device is synchronised.

    Args:
        shape: of the tensor.
        dtype: of the tensor.
        device: the worker's.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.on_host = torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")
        self.on_device = self.on_host
        if device.type == "cuda":
            from vllm.utils.torch_utils import get_accelerator_view_from_cpu_tensor

            self.on_device = get_accelerator_view_from_cpu_tensor(self.on_host)
