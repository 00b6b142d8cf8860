"""A run's settings as its plan needs them, read from the configuration; no engine is built and no weights are read."""

from collections.abc import Callable, Mapping

import torch
from omegaconf import DictConfig

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.config.instantiate import build, build_kind
from ngrpo.entrypoints.trainer import process_count
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.precision import PRECISIONS
from ngrpo.planning.planned_engines import PlannedServers, PlannedTorchEngine, PlannedVllm
from ngrpo.planning.run_settings import PlannedEngine, RunSettings
from ngrpo.rollout.served_dtype import AUTO, served_dtype
from ngrpo.utils.torch_settings import accelerator_of

_TORCH_SLOTS, _VLLM_SLOTS, _FRACTION, _PART_MIB = 128, 256, 0.5, 64.0


def read_run(config: DictConfig, device_bytes: int) -> RunSettings:
    """Reads a checked configuration of a training.

    Args:
        config: composed from ``conf/train.yaml``.
        device_bytes: memory of a device; 0 if it is not known.

    Raises:
        SettingError: a setting is refused, or nothing is known of the engine's memory.
    """
    source: ModelSource = build(config.model)
    algorithm, exploration = build_kind(Algorithm, config.algo), build_kind(Exploration, config.exploration)
    trainer = config.trainer
    adapted = source.lora is not None and not exploration.learning_rates()
    processes, tensor = process_count(trainer), trainer.tensor_parallel_size
    critic = build(config.critic) if config.critic is not None else None
    return RunSettings(
        config=source.config(),
        trust_remote_code=source.trust_remote_code,
        dtype=DTYPES[source.dtype],
        checkpointing=source.checkpointing,
        compile=source.compile,
        lora=source.lora,
        mixed_in=PRECISIONS[trainer.precision],
        microbatch_tokens=trainer.microbatch_tokens,
        head_rows=trainer.head_rows,
        offload_reference=trainer.offload_reference,
        offload_optimizer=trainer.offload_optimizer,
        gather_once=trainer.gather_once,
        optimizer=build(trainer.optimizer),
        critic_optimizer=None if critic is None else critic.optimizer,
        reference=algorithm.needs_reference and not adapted,
        data_ranks=max(1, processes // tensor),
        tensor_parallel_size=tensor,
        prompts_per_batch=algorithm.prompts_per_batch,
        optimizer_steps=algorithm.optimizer_steps,
        group_size=config.rollout.group_size,
        max_prompt_tokens=config.data.max_prompt_tokens,
        max_new_tokens=config.rollout.max_new_tokens,
        engine=_engine(config, source),
        device_bytes=device_bytes,
    )


def _engine(config: DictConfig, source: ModelSource) -> PlannedEngine:
    target = config.rollout.engine["_target_"].rpartition(".")[2]
    if target not in _ENGINES:
        raise SettingError(
            f"rollout.engine._target_={target} is of your own, and nothing is known of its memory; plan with "
            "rollout=torch or rollout=vllm."
        )
    return _ENGINES[target](config, source)


def _torch(config: DictConfig, source: ModelSource) -> PlannedEngine:
    slots = config.rollout.engine.get("max_batch_size") or _TORCH_SLOTS
    rollouts = config.algo.prompts_per_batch * config.rollout.group_size
    return PlannedTorchEngine(
        itemsize=DTYPES[served_dtype(config.rollout.engine.get("dtype", AUTO), source.dtype)].itemsize,
        slots=min(slots, rollouts),
        tokens=config.data.max_prompt_tokens + config.rollout.max_new_tokens,
        concurrent=config.rollout.ahead > 0,
        captured=config.rollout.engine.get("burst") != 1 and accelerator_of(config.trainer.accelerator) == "gpu",
    )


def _vllm(config: DictConfig, source: ModelSource) -> PlannedEngine:
    engine = config.rollout.engine
    served = DTYPES[served_dtype(engine.get("dtype", AUTO), "bfloat16")]
    return PlannedVllm(
        itemsize=served.itemsize,
        fraction=engine.get("gpu_memory_utilization", _FRACTION),
        slots=engine.get("max_batch_size") or _VLLM_SLOTS,
        tensor_parallel_size=engine.get("tensor_parallel_size", 1),
        concurrent=config.rollout.ahead > 0 or not engine.get("enable_sleep_mode", True),
    )


def _server(config: DictConfig, source: ModelSource) -> PlannedEngine:
    return PlannedServers(
        itemsize=DTYPES[source.dtype].itemsize,
        part_bytes=int(config.rollout.engine.get("part_mib", _PART_MIB) * 2**20),
        slots=config.algo.prompts_per_batch * config.rollout.group_size,
        concurrent=config.rollout.ahead > 0,
    )


_ENGINES: Mapping[str, Callable[[DictConfig, ModelSource], PlannedEngine]] = {
    "TorchEngine": _torch,
    "VllmEngine": _vllm,
    "RemoteEngine": _server,
}


def device_memory(config: DictConfig) -> int:
    """Returns the memory of the GPU that the run would train on; 0 on a CPU, whose memory others use too."""
    if accelerator_of(config.trainer.accelerator) != "gpu" or not torch.cuda.is_available():
        return 0
    return torch.cuda.get_device_properties(0).total_memory
