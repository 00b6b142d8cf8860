"""The settings of a run that its memory and speed depend on."""

from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import PretrainedConfig

from ngrpo.modeling.lora import LoraSettings
from ngrpo.planning.engine_memory import EngineMemory
from ngrpo.planning.optimizer_memory import MakeOptimizer


class PlannedEngine(Protocol):
    """What is planned of a rollout engine."""

    @property
    def slots(self) -> int:
        """Most rollouts at a time."""

    @property
    def concurrent(self) -> bool:
        """Whether it keeps its memory while the trainer updates."""

    def memory(self, config: PretrainedConfig, numbers: int, device_bytes: int) -> EngineMemory:
        """Returns its bytes on one device.

        Args:
            config: of the model.
            numbers: of all its parameters.
            device_bytes: memory of the device.
        """


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """See the settings of the same names.

    Attributes:
        config: of the model (``model.path``).
        trust_remote_code: ``model``.
        dtype: ``model.dtype``.
        checkpointing: ``model``.
        compile: ``model``.
        lora: ``model``.
        mixed_in: dtype of ``trainer.precision``; None computes in that of the parameters.
        microbatch_tokens: ``trainer``.
        head_rows: ``trainer``.
        offload_reference: ``trainer``.
        offload_optimizer: ``trainer``.
        gather_once: ``trainer``.
        optimizer: makes the policy's.
        critic_optimizer: makes the critic's; None trains none.
        reference: the algorithm needs a reference, and a model of its own for it.
        data_ranks: processes, or tensor-parallel groups of them, that train on rollouts of their own.
        tensor_parallel_size: ``trainer``.
        prompts_per_batch: ``algo``.
        optimizer_steps: ``algo``.
        group_size: ``rollout``.
        max_prompt_tokens: ``data``.
        max_new_tokens: ``rollout``.
        engine: ``rollout.engine``.
        device_bytes: memory of a device; 0 if there is none.
    """

    config: PretrainedConfig
    trust_remote_code: bool
    dtype: torch.dtype
    checkpointing: str
    compile: bool
    lora: LoraSettings | None
    mixed_in: torch.dtype | None
    microbatch_tokens: int
    head_rows: int
    offload_reference: bool
    offload_optimizer: bool
    gather_once: bool
    optimizer: MakeOptimizer
    critic_optimizer: MakeOptimizer | None
    reference: bool
    data_ranks: int
    tensor_parallel_size: int
    prompts_per_batch: int
    optimizer_steps: int
    group_size: int
    max_prompt_tokens: int
    max_new_tokens: int
    engine: PlannedEngine
    device_bytes: int

    @property
    def devices(self) -> int:
        """Of the training."""
        return self.data_ranks * self.tensor_parallel_size

    @property
    def computed_in(self) -> torch.dtype:
        """The dtype of forward and backward passes."""
        return self.mixed_in or self.dtype

    @property
    def longest(self) -> int:
        """Most tokens of a sequence, prompt included."""
        return self.max_prompt_tokens + self.max_new_tokens

    @property
    def sequences_per_step(self) -> int:
        """Of a data rank, in one optimiser step."""
        return max(1, self.prompts_per_batch * self.group_size // (self.optimizer_steps * self.data_ranks))

    @property
    def pass_tokens(self) -> int:
        """Most tokens of a pass: the budget, unless all that there are is less or one sequence is more."""
        return max(self.longest, min(self.microbatch_tokens, self.sequences_per_step * self.longest))

    @property
    def accumulates(self) -> bool:
        """Whether a step may take several passes, so that gradients are there when one begins."""
        return self.sequences_per_step * self.longest > self.pass_tokens
