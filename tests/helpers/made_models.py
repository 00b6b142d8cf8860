"""Tiny random models of many kinds, scaled so that what is left out or done twice shows in the log-probs."""

from typing import Any

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ngrpo.modeling.supported_models import SUPPORTED

VOCABULARY = 64

TINY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}

_FULL = {"layer_types": ["full_attention"] * 2, "sliding_window": 128}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED = _EXPERTS | {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}

SPECIAL: dict[str, dict[str, Any]] = {
    "cohere": {"logit_scale": 0.6},
    "cohere2": _FULL | {"logit_scale": 0.6},
    "cohere2_moe": _FULL | _EXPERTS | {"logit_scale": 0.6},
    "cwm": _FULL,
    "dots1": _FULL | _ROUTED | {"first_k_dense_replace": 1},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16},
    "exaone4": _FULL,
    "exaone_moe": _FULL | _ROUTED,
    "flex_olmo": _EXPERTS,
    "gemma": {"head_dim": 8},
    "gemma2": _FULL | {"head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": None},
    "gemma3_text": _FULL | {"head_dim": 8, "query_pre_attn_scalar": 8},
    "glm": {"head_dim": 8},
    "glm4": {"head_dim": 8},
    "glm4_moe": _ROUTED | {"head_dim": 8, "first_k_dense_replace": 1},
    "granite": {"logits_scaling": 1.5},
    "granitemoe": _LOCAL | {"logits_scaling": 1.5},
    "granitemoeshared": _LOCAL | {"logits_scaling": 1.5, "shared_intermediate_size": 16},
    "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": _EXPERTS | {"head_dim": 8, "moe_topk": 2},
    "hyperclovax": {"logits_scaling": 0.7},
    "minimax_m2": _LOCAL | {"head_dim": 8, "rotary_dim": 8},
    "ministral": _FULL | {"head_dim": 8},
    "ministral3": {"head_dim": 8, "sliding_window": None},
    "mistral": {"sliding_window": None},
    "mixtral": _LOCAL | {"sliding_window": None},
    "olmo3": _FULL,
    "olmoe": _EXPERTS,
    "phi3": {"sliding_window": None},
    "phimoe": _LOCAL | {"sliding_window": None},
    "qwen2_moe": _EXPERTS | {"shared_expert_intermediate_size": 16},
    "qwen3_moe": _EXPERTS | {"head_dim": 8},
    "seed_oss": {"head_dim": 8},
    "solar_open": _ROUTED | {"head_dim": 8},
    "vaultgemma": _FULL | {"head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": None},
}
"""What a type needs beside `TINY`: experts, sizes of its own, no windows."""

SINCE = {"internlm3": (5, 23), "exaone": (5, 24)}
"""First transformers that has a supported type, where that is not the oldest which the project takes."""


def has_type(kind: str) -> bool:
    """Says whether the installed transformers should have a supported type."""
    major, minor = transformers.__version__.split(".")[:2]
    return (int(major), int(minor)) >= SINCE.get(kind, (0, 0))


EVERY_SUPPORTED = [
    pytest.param(kind, marks=pytest.mark.skipif(not has_type(kind), reason=f"this transformers has no {kind}"))
    for kind in sorted(SUPPORTED)
]
"""The supported types, those skipped that are newer than the installed transformers."""


def tiny_config(kind: str, **changes: Any) -> PretrainedConfig:
    """A small configuration of a model type."""
    config: PretrainedConfig = CONFIG_MAPPING[kind](**TINY | SPECIAL.get(kind, {}) | changes)
    return config


def spread(model: torch.nn.Module, seed: int = 1) -> None:
    """Draws every parameter anew, so that layers, norms, biases and head all change the log-probs by nats."""
    generator = torch.Generator().manual_seed(seed)

    def normal(like: torch.Tensor, std: float) -> torch.Tensor:
        return (torch.randn(like.shape, generator=generator) * std).to(like.dtype)

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name:
                parameter.copy_(normal(parameter, 0.5))
            elif parameter.dim() > 1:
                parameter.copy_(normal(parameter, 1.2 * parameter.shape[-1] ** -0.5))
            elif "bias" in name:
                parameter.copy_(normal(parameter, 0.3))
            else:
                parameter.mul_(1 + normal(parameter, 0.2)).add_(normal(parameter, 0.05))


def tiny_model(config: PretrainedConfig, implementation: str = "eager") -> PreTrainedModel:
    """The model of a configuration in eval mode; the same parameters at every call."""
    model = AutoModelForCausalLM.from_config(
        type(config).from_dict(config.to_dict()), attn_implementation=implementation, dtype=torch.float32
    )
    spread(model)
    eval_mode: PreTrainedModel = model.eval()
    return eval_mode
