"""The test for out-of-memory errors, on CUDA and on a CPU."""

import torch

_CPU = ("DefaultCPUAllocator", "can't allocate memory", "not enough memory")
"""What PyTorch says on a CPU, where it has no exception of its own."""


def out_of_memory(error: BaseException) -> bool:
    """Says whether an error is for want of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _CPU)
