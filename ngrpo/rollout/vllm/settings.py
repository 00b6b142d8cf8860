"""The settings that travel through vLLM's configuration: of an engine, and of a request."""

from dataclasses import asdict, dataclass
from typing import Any

CONFIG_KEY = "ngrpo"
"""Key of our settings in vLLM's ``additional_config`` and in a request's ``extra_args``."""


@dataclass(frozen=True)
class MixingSettings:
    """Settings of an engine's mixing.

    Attributes:
        width: the largest K of any strategy that will run.
        vectors: feed vectors made outside the forward, for strategies whose vectors are no sums of rows.
    """

    width: int
    vectors: bool

    def additional_config(self) -> dict[str, Any]:
        """Returns vLLM's ``additional_config``."""
        return {CONFIG_KEY: asdict(self)}


def settings_of(vllm_config: Any) -> MixingSettings | None:
    """Returns our settings of a vLLM engine, None for an engine that is not ours."""
    additional = vllm_config.additional_config
    ours = additional.get(CONFIG_KEY) if isinstance(additional, dict) else None
    return None if ours is None else MixingSettings(**ours)


def slot_arguments(slot: int) -> dict[str, Any]:
    """Returns the ``extra_args`` of the request that owns a slot."""
    return {CONFIG_KEY: {"slot": slot}}


def slot_of(sampling_params: Any) -> int:
    """Returns the slot that a request was given, -1 for none."""
    extra = sampling_params.extra_args or {}
    return int(extra.get(CONFIG_KEY, {}).get("slot", -1))
