"""The weights of a policy that TRL trains, as an engine of this project takes them."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.loading import DTYPES
from ngrpo.modeling.lora import LoraSettings, merged
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.modeling.sharding import full

_BASE = "base_model.model."
_FREE = frozenset(
    {
        "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying",
        "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern",
        "layers_to_transform", "loftq_config", "lora_alpha", "lora_dropout", "lora_ga_config", "peft_type",
        "peft_version", "r", "revision", "runtime_config", "target_modules", "task_type",
    }
)  # fmt: skip
"""Options of a LoRA adapter that leave its sum W + alpha / rank B A; peft's others change it, those to come too."""


@dataclass(frozen=True)
class SameArchitecture(ModelInMemory):
    """Gives models like the one in memory, adapters left out; their weights come with `sync_weights`."""

    def load(self) -> PreTrainedModel:
        """Builds a model, in eval mode; the trainer's random numbers stay as they are."""
        self.config()
        config = type(self.lm.config).from_dict(self.lm.config.to_dict())
        with torch.random.fork_rng(devices=[]):
            made: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=DTYPES[self.dtype], attn_implementation=IMPLEMENTATION
            )
        return made.eval()


def check_weights(policy: Any) -> None:
    """Refuses weights that an engine would get as other numbers than those of TRL's own passes.

    Raises:
        SettingError: they are quantised, or the policy has several adapters, or one that is no plain LoRA of linear
            layers.
    """
    if getattr(policy.config, "quantization_config", None) is not None:  # whole numbers of 8 bits have the same shape
        raise SettingError(
            "the policy's weights are quantised, and an engine would take them without their scales; leave "
            "quantization_config out, and train a LoRA adapter of the model in bfloat16."
        )
    _check_adapters(policy)


def _check_adapters(policy: Any) -> None:
    for name, config in getattr(policy, "peft_config", {}).items():
        if str(getattr(config, "peft_type", "")).rpartition(".")[2] != "LORA" or name not in ("default", "ref"):
            raise SettingError(f"peft_config={type(config).__name__} ({name}) is no LoRA adapter; use LoraConfig.")
        usual = type(config)()
        given = {option.name: getattr(config, option.name) for option in fields(config)}
        changed = [o for o, value in given.items() if o not in _FREE and value and value != getattr(usual, o)]
        if changed:
            raise SettingError(
                f"peft_config has {', '.join(changed)}, whose weights are not W + alpha / rank B A; remove "
                f"{'it' if len(changed) == 1 else 'them'}."
            )
    for name, module in policy.named_modules():
        base = getattr(module, "base_layer", None)
        if base is not None and not isinstance(base, nn.Linear):
            raise SettingError(
                f"peft_config puts an adapter on {name.removeprefix(_BASE)}, which is no linear layer; leave it out of "
                "target_modules."
            )


def whole_weights(policy: Any) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights by the names of a model without adapters, a LoRA adapter added, tied weights once.

    A collective of all ranks where the policy is sharded by FSDP2.
    """
    adapters = getattr(policy, "peft_config", {})
    named = {name.removeprefix(_BASE): weight.detach() for name, weight in policy.named_parameters()}
    lora = adapters.get("default")
    settings = None if lora is None else LoraSettings(lora.r, lora.lora_alpha)
    return merged(named, settings, full)
