"""The rollout engines as they are planned: where their memory comes from."""

from dataclasses import dataclass

from transformers import PretrainedConfig

from ngrpo.planning.engine_memory import EngineMemory, torch_engine_memory, vllm_engine_memory


@dataclass(frozen=True)
class PlannedTorchEngine:
    """`ngrpo.rollout.torch_engine.engine.TorchEngine`: a whole model on every device.

    Attributes:
        itemsize: bytes of a number.
        slots: rollouts at a time.
        tokens: of the longest rollout, prompt included.
        concurrent: it keeps its memory while the trainer updates.
        captured: its decode steps are replayed from CUDA graphs.
    """

    itemsize: int
    slots: int
    tokens: int
    concurrent: bool = False
    captured: bool = False

    def memory(self, config: PretrainedConfig, numbers: int, device_bytes: int) -> EngineMemory:
        """Returns its bytes on one device (see `ngrpo.planning.run_settings.PlannedEngine`)."""
        return torch_engine_memory(config, numbers, self.itemsize, self.slots, self.tokens, self.captured)


@dataclass(frozen=True)
class PlannedServers:
    """`ngrpo.rollout.remote_engine.RemoteEngine`: nothing on a device of the training but weights on their way.

    Attributes:
        itemsize: bytes of a number as served.
        part_bytes: of the weights that are sent at a time.
        slots: most rollouts at a time.
        concurrent: it keeps its memory while the trainer updates.
    """

    itemsize: int
    part_bytes: int
    slots: int
    concurrent: bool = False

    def memory(self, config: PretrainedConfig, numbers: int, device_bytes: int) -> EngineMemory:
        """Returns its bytes on one device (see `ngrpo.planning.run_settings.PlannedEngine`)."""
        transfer = min(self.part_bytes, numbers * self.itemsize)
        return EngineMemory(weights=0, cache=0, working=0, asleep=0, transfer=transfer, cache_tokens=0)


@dataclass(frozen=True)
class PlannedVllm:
    """`ngrpo.rollout.vllm.engine.VllmEngine`: a fraction of the device.

    Attributes:
        itemsize: bytes of a number as served.
        fraction: ``rollout.engine.gpu_memory_utilization``.
        slots: most rollouts at a time.
        tensor_parallel_size: GPUs that share the model.
        concurrent: it keeps its memory while the trainer updates.
    """

    itemsize: int
    fraction: float
    slots: int
    tensor_parallel_size: int = 1
    concurrent: bool = False

    def memory(self, config: PretrainedConfig, numbers: int, device_bytes: int) -> EngineMemory:
        """Returns its bytes on one device (see `ngrpo.planning.run_settings.PlannedEngine`)."""
        return vllm_engine_memory(
            config, numbers, self.itemsize, self.fraction, device_bytes, self.tensor_parallel_size
        )
