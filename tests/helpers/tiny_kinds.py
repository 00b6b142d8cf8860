"""Tiny random models of many kinds, with weights so large that every part of a model shows in its log-probs."""

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from ngrpo.modeling.loading import ModelSource

VOCABULARY = 64
_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3,
    "eos_token_id": 3, "pad_token_id": 0, "bos_token_id": 2,
}  # fmt: skip
_WHOLE = ["full_attention"] * 2
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen2": Qwen2Config(**_SIZES),
    "qwen3": Qwen3Config(**_SIZES, head_dim=16),
    "llama": LlamaConfig(**_SIZES, rope_parameters={"rope_type": "default", "rope_theta": 100.0}),
    "gemma": GemmaConfig(**_SIZES, head_dim=16),
    "gemma2": Gemma2Config(
        **_SIZES, head_dim=16, layer_types=_WHOLE, attn_logit_softcapping=None, final_logit_softcapping=4.0
    ),
    "gemma3": Gemma3TextConfig(**_SIZES, head_dim=16, layer_types=_WHOLE, tie_word_embeddings=False),
    "olmo2": Olmo2Config(**_SIZES),
    "granite": GraniteConfig(
        **_SIZES, logits_scaling=4.0, embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.2
    ),
    "cohere": CohereConfig(**_SIZES, logit_scale=0.25),
    "smollm3": SmolLM3Config(**_SIZES),
    "mistral": MistralConfig(**_SIZES, sliding_window=None),
}


def tiny(kind: str, folder: Path, dtype: str = "float32") -> ModelSource:
    """Writes a model of a kind, biases and norms random too, unless the folder holds it."""
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[kind])
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.3 * torch.randn_like(parameter)
        model.save_pretrained(folder)
    return ModelSource(str(folder), dtype=dtype)
