"""The settings that travel through vLLM's configuration: of an engine, and of a request."""

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ngrpo.rollout.records.session import Admission

CONFIG_KEY = "ngrpo"
"""Key of our settings in vLLM's ``additional_config`` and in a request's ``extra_args``."""

GivenMixtures = tuple[list[int], list[str]]
"""The mixed positions of a prefix, ascending, and a digest of what stands at each."""

LOAD_FORMAT = "ngrpo"
"""Name of our model loader (see `ngrpo.rollout.vllm.loader`)."""


@dataclass(frozen=True)
class MixingSettings:
    """Settings of an engine's mixing.

    Attributes:
        width: the largest K of any strategy that will run.
        vectors: feed vectors made outside the forward, for strategies whose vectors are no sums of rows.
        burst: most decode steps a round of the scheduler.
    """

    width: int
    vectors: bool
    burst: int = 1

    def additional_config(self) -> dict[str, Any]:
        """Returns vLLM's ``additional_config``."""
        return {CONFIG_KEY: asdict(self)}


def loading_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of ``vllm.LLM`` by which our loader loads in the format that ``options`` name."""
    own = {"load_format": options.get("load_format", "auto")}
    return {
        "load_format": LOAD_FORMAT,
        "model_loader_extra_config": own | dict(options.get("model_loader_extra_config") or {}),
    }


def settings_of(vllm_config: Any) -> MixingSettings | None:
    """Returns our settings of a vLLM engine, None for an engine that is not ours."""
    additional = vllm_config.additional_config
    ours = additional.get(CONFIG_KEY) if isinstance(additional, dict) else None
    return None if ours is None else MixingSettings(**ours)


def request_arguments(session: int, admission: Admission, mixtures: GivenMixtures = ([], [])) -> dict[str, Any]:
    """Returns the ``extra_args`` of a request of ours, which travel to the scheduler and to every worker.

    Args:
        session: number of its session.
        admission: what is written to its slot.
        mixtures: in its prefix.
    """
    ours = {"session": session, "admission": pickle.dumps(admission), "mixtures": mixtures}
    return {CONFIG_KEY: ours}


def admission_of(sampling_params: Any) -> tuple[int, Admission] | None:
    """Returns session and admission of a request, None for one that is not ours."""
    ours = _ours(sampling_params)
    return None if ours is None else (ours["session"], pickle.loads(ours["admission"]))


def given_mixtures_of(sampling_params: Any) -> GivenMixtures | None:
    """Returns the mixtures in a request's prefix, None for a request that is not ours."""
    ours = _ours(sampling_params)
    mixtures: GivenMixtures | None = None if ours is None else ours["mixtures"]
    return mixtures


def is_ours(sampling_params: Any) -> bool:
    """Says whether a request is one of ours."""
    return _ours(sampling_params) is not None


def note_burst(scheduler_output: Any, steps: int) -> None:
    """Tells the workers how many steps to make with what was scheduled."""
    scheduler_output.ngrpo_burst = steps


def burst_of(scheduler_output: Any) -> int:
    """Returns the steps to make with what was scheduled."""
    steps: int = getattr(scheduler_output, "ngrpo_burst", 1)
    return steps


def _ours(sampling_params: Any) -> dict[str, Any] | None:
    extra = None if sampling_params is None else sampling_params.extra_args
    found: dict[str, Any] | None = (extra or {}).get(CONFIG_KEY)
    return found
