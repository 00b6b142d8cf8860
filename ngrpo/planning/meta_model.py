"""A rank's model on the meta device: its parameters have shapes and dtypes, and no weights are read."""

import copy
from typing import TypeVar

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.lora import LoraSettings, add_adapter
from ngrpo.modeling.policy import ScoringModel

Model = TypeVar("Model", bound=ScoringModel)


def meta_model(
    config: PretrainedConfig,
    dtype: torch.dtype,
    lora: LoraSettings | None = None,
    trust_remote_code: bool = False,
    kind: type[Model] = ScoringModel,  # type: ignore[assignment]
) -> Model:
    """Makes a model of this architecture, with its adapters.

    Args:
        config: of a supported model.
        dtype: of the parameters; adapters are float32 all the same.
        lora: None trains every parameter.
        trust_remote_code: run the code that comes with the model.
        kind: the policy's class or the critic's.
    """
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=IMPLEMENTATION, trust_remote_code=trust_remote_code
        )
        if lora is not None:
            add_adapter(lm, lora)
        return kind(lm)


def rank_config(config: PretrainedConfig, tensor_parallel_size: int) -> PretrainedConfig:
    """Returns the architecture of what a rank of a tensor-parallel group holds: a part of the heads and columns.

    See `ngrpo.modeling.tensor_parallel`, which splits the decoder layers so and leaves embedding and head whole.
    """
    if tensor_parallel_size == 1:
        return config
    part = copy.deepcopy(config)
    part.head_dim = head_size(config)
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        setattr(part, name, getattr(config, name) // tensor_parallel_size)
    return part


def head_size(config: PretrainedConfig) -> int:
    """Returns the width of an attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
