"""Tiny random models of many kinds, scaled so that what is left out or done twice shows in the log-probs."""

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

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


def tiny_config(kind: str, **changes: Any) -> PretrainedConfig:
    """A configuration of a model type, with what its kind needs beside `TINY`."""
    config: PretrainedConfig = CONFIG_MAPPING[kind](**TINY | changes)
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
