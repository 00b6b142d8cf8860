"""The supported model types: those whose log-probs were compared with their own forward, one by one.

Trainer and torch engine run a model's decoder layers with an attention of their own (`ngrpo.modeling.attention`) and
apply the head themselves, so that a type which is merely loaded may be computed wrongly. A type that is not listed is
therefore refused. A model that brings its own code (``model.trust_remote_code``) has no listed type; it is let through
to the comparison that a run makes at its start.
"""

from transformers import PretrainedConfig

from ngrpo.errors import SettingError
from ngrpo.modeling.attention import check_attention
from ngrpo.modeling.config_values import check_values
from ngrpo.modeling.head import LogitMap
from ngrpo.modeling.rope import check_rope

SUPPORTED = frozenset(
    {
        "apertus", "arcee", "cohere", "cohere2", "cohere2_moe", "cwm", "dots1", "ernie4_5", "ernie4_5_moe", "exaone",
        "exaone4", "exaone_moe", "flex_olmo", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe", "granite",
        "granitemoe", "granitemoeshared", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "hyperclovax", "internlm3",
        "jais2", "llama", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral", "nanochat", "olmo", "olmo2",
        "olmo3", "olmoe", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3",
        "solar_open", "starcoder2", "vaultgemma",
    }
)  # fmt: skip
"""``model_type`` of the supported models; the tests compare every one."""

_KNOWN = "llama, qwen2, qwen3, mistral, gemma, olmo2, granite, cohere, smollm3 or another of docs/models.md"

_BY_TYPE = {
    "bloom": "ALiBi positions",
    "diffllama": "differential attention",
    "falcon": "an attention of its own",
    "gpt_oss": "attention sinks",
    "llama4": "chunked attention",
    "llama4_text": "chunked attention",
    "mpt": "ALiBi positions",
    **dict.fromkeys(("biogpt", "gpt2", "gpt_bigcode", "gpt_neo", "opt", "xglm"), "learned or absolute positions"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "a recurrent state"),
}
_BY_SETTING = {
    "kv_lora_rank": "multi-head latent attention",
    "vision_config": "a vision encoder",
    "audio_config": "an audio encoder",
    "mamba_d_state": "a recurrent state",
    "linear_num_key_heads": "linear attention",
}


def check_supported(config: PretrainedConfig) -> None:
    """Refuses models that trainer and torch engine would compute wrongly, or not at all.

    Raises:
        SettingError: the model's type, layers, positions, head or values are not supported.
    """
    path, kind = config._name_or_path, config.model_type
    quantised = getattr(config, "quantization_config", None)
    if quantised is not None:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        raise SettingError(
            f"model.path={path} is quantised ({method or 'method not named'}), and quantised weights cannot be "
            "trained; give the model that it was made from."
        )
    if getattr(config, "is_encoder_decoder", False) or (kind not in SUPPORTED and not brings_code(config)):
        raise SettingError(
            f"model.path={path} is of type {kind or 'unknown'}{_reason(config)}, which is not supported; choose a "
            f"model of type {_KNOWN}."
        )
    check_values(config)
    check_attention(config)
    check_rope(config)
    LogitMap.of(config)


def brings_code(config: PretrainedConfig) -> bool:
    """Whether the configuration's class came with the model."""
    return type(config).__module__.startswith("transformers_modules")


def _reason(config: PretrainedConfig) -> str:
    if getattr(config, "is_encoder_decoder", False):
        return " (encoder and decoder)"
    by_setting = (words for name, words in _BY_SETTING.items() if getattr(config, name, None))
    reason = _BY_TYPE.get(config.model_type) or next(by_setting, None)
    return f" ({reason})" if reason else ""
