"""The memory of the rollout engines on a device that they share with the trainer."""

from dataclasses import dataclass

from transformers import PretrainedConfig

from ngrpo.planning.meta_model import head_size

GIB = 2**30
BUCKET_BYTES = 2 * (512 << 20)
"""Most of the weights that are on their way to vLLM at a time: a bucket of half a GiB, and the tensor that fills it."""
ASLEEP_BYTES = 2 * GIB
"""What a sleeping vLLM keeps on a GPU: its CUDA context's share, CUDA graphs and workspaces."""
_LOGITS_COPIES = 5
"""Float32 tensors as large as a step's logits that the torch engine holds while it draws tokens."""


@dataclass(frozen=True)
class EngineMemory:
    """Bytes of an engine on one device.

    Attributes:
        weights: that it serves.
        cache: for keys and values.
        working: more while it generates.
        asleep: while the trainer updates.
        transfer: weights on their way to it.
        cache_tokens: that the cache has room for.
    """

    weights: int
    cache: int
    working: int
    asleep: int
    transfer: int
    cache_tokens: int

    @property
    def awake(self) -> int:
        """While it generates."""
        return self.weights + self.cache + self.working


def cache_bytes_per_token(config: PretrainedConfig, itemsize: int, tensor_parallel_size: int = 1) -> int:
    """Returns the bytes of one token's keys and values: 2 x layers x key heads x head width x itemsize.

    Fewer key heads than ranks are repeated.
    """
    heads = max(1, config.num_key_value_heads // tensor_parallel_size)
    return 2 * config.num_hidden_layers * heads * head_size(config) * itemsize


def torch_engine_memory(
    config: PretrainedConfig, numbers: int, itemsize: int, slots: int, tokens: int, captured: bool = False
) -> EngineMemory:
    """Returns the torch engine's: a copy of the model that stays, and a cache of ``slots`` rollouts during rollouts.

    Args:
        config: of the model.
        numbers: of all its parameters.
        itemsize: bytes of one of them.
        slots: rollouts at a time.
        tokens: of the longest rollout, prompt included.
        captured: steps are replayed from CUDA graphs, which have working memory of their own.
    """
    working = slots * config.vocab_size * (itemsize + 4 * _LOGITS_COPIES)
    places = (slots + 1) * tokens
    return EngineMemory(
        weights=numbers * itemsize,
        cache=places * cache_bytes_per_token(config, itemsize),
        working=2 * working if captured else working,
        asleep=numbers * itemsize,
        transfer=0,
        cache_tokens=places,
    )


def vllm_engine_memory(
    config: PretrainedConfig, numbers: int, itemsize: int, fraction: float, device_bytes: int, tensor_parallel_size: int
) -> EngineMemory:
    """Returns vLLM's: the fraction of the device that it may have, of which weights and workspaces leave the cache.

    Args:
        config: of the model.
        numbers: of all its parameters.
        itemsize: bytes of one of them as served.
        fraction: ``rollout.engine.gpu_memory_utilization``.
        device_bytes: memory of the device.
        tensor_parallel_size: GPUs that share the model.
    """
    weights = numbers * itemsize // tensor_parallel_size
    cache = max(0, round(fraction * device_bytes) - weights - ASLEEP_BYTES)
    return EngineMemory(
        weights=weights,
        cache=cache,
        working=ASLEEP_BYTES,
        asleep=ASLEEP_BYTES,
        transfer=BUCKET_BYTES,
        cache_tokens=cache // cache_bytes_per_token(config, itemsize, tensor_parallel_size),
    )
