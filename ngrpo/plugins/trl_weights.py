"""The weights of a policy that TRL trains, as an engine of this project takes them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.loading import DTYPES
from ngrpo.modeling.lora import LoraSettings, merged
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.modeling.sharding import full

_BASE = "base_model.model."
_PLAIN = {"use_dora": False, "use_rslora": False, "rank_pattern": {}, "alpha_pattern": {}, "modules_to_save": None}
"""Options of a LoRA adapter, with the values whose sum is W + alpha / rank B A."""


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


def check_adapter(policy: Any) -> None:
    """Refuses adapters that cannot be added to the weights.

    Raises:
        SettingError: the policy has several, or one that is no plain LoRA.
    """
    for name, config in getattr(policy, "peft_config", {}).items():
        if str(getattr(config, "peft_type", "")).rpartition(".")[2] != "LORA" or name not in ("default", "ref"):
            raise SettingError(f"peft_config={type(config).__name__} ({name}) is no LoRA adapter; use LoraConfig.")
        changed = [option for option, value in _PLAIN.items() if getattr(config, option) not in (value, None)]
        if changed:
            raise SettingError(
                f"peft_config has {', '.join(changed)}, whose weights are not W + alpha / rank B A; remove "
                f"{'it' if len(changed) == 1 else 'them'}."
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
