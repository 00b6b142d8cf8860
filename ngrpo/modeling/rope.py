"""The supported rotary positions: those whose frequencies depend on the position alone.

Where they depend on the longest sequence of a pass, a token's log-prob would depend on what it is batched with, and
keys already cached would have been turned by other frequencies than those that follow.
"""

import math
from collections.abc import Iterator
from typing import Any

from transformers import PretrainedConfig

from ngrpo.errors import SettingError

_FIXED = ("default", "linear", "llama3", "yarn")
_SWITCHED = "longrope"
"""One set of frequencies up to ``original_max_position_embeddings``, another one beyond: fixed if none goes beyond."""


def check_rope(config: PretrainedConfig) -> None:
    """Refuses rotary embeddings that change with the length of a sequence.

    Raises:
        SettingError: the kind is another than those above, or the base is no positive number.
    """
    for rope in _parameters(config):
        theta = rope.get("rope_theta", 1.0)
        if type(theta) not in (int, float) or not 0 < theta < math.inf:
            raise SettingError(
                f"model.path={config._name_or_path} has rope_theta={theta!r} in its config.json, where a positive "
                "number must stand; restore the file."
            )
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in (*_FIXED, _SWITCHED):
            raise SettingError(
                f"model.path={config._name_or_path} has rope_type={kind} in its config.json, and supported are "
                f"{', '.join((*_FIXED, _SWITCHED))}; choose another model."
            )


def positions_of(config: PretrainedConfig) -> int | None:
    """Returns how many positions can be used: the model's, or those before its frequencies are switched."""
    limits = [getattr(config, "max_position_embeddings", None), before_switch(config)]
    return min((limit for limit in limits if limit is not None), default=None)


def before_switch(config: PretrainedConfig) -> int | None:
    """Returns how many positions there are before frequencies are switched; None where they never are."""
    limits = [
        rope.get("original_max_position_embeddings", getattr(config, "original_max_position_embeddings", None))
        for rope in _parameters(config)
        if rope.get("rope_type", rope.get("type")) == _SWITCHED
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def _parameters(config: PretrainedConfig) -> Iterator[dict[str, Any]]:
    """Yields the rotary parameters, one set or one for each type of layer."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [value for value in found.values() if isinstance(value, dict)]
    yield from nested or [found]
