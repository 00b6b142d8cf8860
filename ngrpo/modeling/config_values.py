"""The checks of values in a model's config.json from which no sensible model can be built."""

import math
from typing import Any

from transformers import PretrainedConfig
from transformers.activations import ACT2FN

from ngrpo.errors import SettingError

_COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
_MAY_BE_ABSENT = {"head_dim": int, "rope_theta": float, "rms_norm_eps": float, "layer_norm_eps": float}

_ACTIVATIONS = ("hidden_act", "hidden_activation")
"""Gemma 2 and 3 have the second name."""


def check_values(config: PretrainedConfig) -> None:
    """Refuses sizes that are not positive whole numbers, and heads that do not divide.

    Raises:
        SettingError: names the value.
    """
    for name in _COUNTS:
        value = getattr(config, name, None)
        if type(value) is not int or value < 1:
            raise _bad(config, name, value, "a positive whole number")
    for name, kind in _MAY_BE_ABSENT.items():
        value = getattr(config, name, None)
        if value is not None and not _positive(value, kind):
            raise _bad(config, name, value, "a positive number")
    for name in _ACTIVATIONS:
        act = getattr(config, name, None)
        if act is not None and act not in ACT2FN:
            raise _bad(config, name, act, "an activation function that transformers knows")
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    if heads % shared:
        raise _bad(config, "num_key_value_heads", shared, f"a divisor of num_attention_heads={heads}")
    if getattr(config, "head_dim", None) is None and config.hidden_size % heads:
        raise _bad(config, "num_attention_heads", heads, f"a divisor of hidden_size={config.hidden_size}")


def _positive(value: Any, kind: type) -> bool:
    right = type(value) is int or (kind is float and type(value) is float)
    return right and 0 < value < math.inf


def _bad(config: PretrainedConfig, name: str, value: Any, wanted: str) -> SettingError:
    return SettingError(
        f"model.path={config._name_or_path} has {name}={value!r} in its config.json, where {wanted} must stand; "
        "restore the file."
    )
