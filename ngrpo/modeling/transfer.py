"""The copy of tensors to the device, without waiting for it."""

import torch
from torch import Tensor


def onto(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on ``device``.

    From pageable host memory a copy would wait until the device has done all that was launched before, and nothing
    more would be launched meanwhile; from pinned memory it takes its turn.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
