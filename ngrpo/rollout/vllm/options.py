"""The further arguments of ``vllm.LLM`` that ``rollout.engine.options`` may have, and those that are refused."""

from collections.abc import Mapping
from typing import Any

from ngrpo.errors import SettingError

_LOSING = {
    "speculative_config": (None, "speculative decoding accepts tokens whose mixtures were never made"),
    "pipeline_parallel_size": (1, "records are made on the last stage and read on the first"),
    "enable_dbo": (False, "each half of a batch would be fed the mixtures of the first"),
    "ubatch_size": (0, "each part of a batch would be fed the mixtures of the first"),
    "prefill_context_parallel_size": (1, "a worker that has a part of a prompt would be fed mixtures of the whole"),
    "enable_batch_sharded_sampling": (False, "every worker needs the records of all rollouts"),
    "weight_transfer_config": (None, "weights come from the trainer, and are checked"),
    "worker_cls": (None, "the workers make the records of rollouts"),
}
"""Those that cannot be served, with the value that asks for nothing."""

_SETTINGS_OF = {
    "model": "model.path",
    "trust_remote_code": "model.trust_remote_code",
    "max_model_len": "data.max_prompt_tokens and rollout.max_new_tokens",
    "max_num_seqs": "rollout.engine.max_batch_size",
    **{
        name: f"rollout.engine.{name}"
        for name in ("dtype", "gpu_memory_utilization", "tensor_parallel_size", "enforce_eager", "enable_sleep_mode")
    },
}
"""Those that have settings of their own, which the engine goes by."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuses options under which mixtures would be lost, or that the engine would know nothing of.

    Raises:
        SettingError: names the option, and what to set instead.
    """
    for name, (harmless, reason) in _LOSING.items():
        if options.get(name) not in (None, harmless):
            raise SettingError(f"rollout.engine.options.{name}={options[name]} is not supported ({reason}); remove it.")
    for name, setting in _SETTINGS_OF.items():
        if name in options:
            raise SettingError(
                f"rollout.engine.options.{name}={options[name]} would pass the engine by; set {setting} instead."
            )


def scheduler_argument(burst: int, options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the argument by which vLLM schedules bursts of decode steps, and by which our plugin gets where it does.

    Raises:
        SettingError: there can be no bursts, or the options name a scheduler of their own.
    """
    if burst < 1:
        raise SettingError(f"rollout.engine.burst={burst} makes no step; 1 asks the scheduler at every step.")
    if options.get("scheduler_cls") is None:
        return {"scheduler_cls": "ngrpo.rollout.vllm.burst_scheduler.BurstScheduler"}
    if burst > 1:
        raise SettingError(
            f"rollout.engine.burst={burst} has a scheduler of its own, beside which "
            f"rollout.engine.options.scheduler_cls={options['scheduler_cls']} cannot run; set rollout.engine.burst=1."
        )
    return {}
