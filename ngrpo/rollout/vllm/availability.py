"""Facts for the choice of an engine: the memory of a GPU, and the models that vLLM has implementations of."""

import torch
from transformers import PretrainedConfig


def gpu_memory(index: int) -> tuple[int, int]:
    """Returns the free bytes of a GPU, and all that it has."""
    free, total = torch.cuda.mem_get_info(index)
    return free, total


def has_native(config: PretrainedConfig) -> bool:
    """Says whether vLLM has an implementation of its own for a model; it runs others by transformers.

    Raises:
        ImportError: vLLM cannot be imported.
    """
    from vllm import ModelRegistry

    supported = set(ModelRegistry.get_supported_archs())
    return any(name in supported for name in config.architectures or ())
