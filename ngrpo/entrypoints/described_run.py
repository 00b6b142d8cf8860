"""The description of a run, taken from its configuration and parts."""

import reprlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from omegaconf import DictConfig

from ngrpo.config.environment import redacted, stored
from ngrpo.data.sources.resolve import hub_data_set
from ngrpo.entrypoints.components import Components
from ngrpo.exploration.base import Exploration
from ngrpo.report.run_description import RunDescription
from ngrpo.utils.hardware import hardware
from ngrpo.utils.provenance import git_commit, versions


def described(
    config: DictConfig, components: Components, datamodule: Any, methods: Mapping[str, str], changed: Mapping[str, str]
) -> RunDescription:
    """Returns what a run is that begins now; what came from the environment is told by its interpolation.

    Args:
        config: checked.
        components: that it builds.
        datamodule: of the run.
        methods: names of the chosen methods.
        changed: the settings that differ from the defaults, see `ngrpo.entrypoints.changed_settings`.
    """
    settings = stored(config)
    return RunDescription(
        model=str(settings["model"]["path"]),
        data=_data(settings["data"]),
        held_out=_held_out(settings),
        data_identity=redacted(datamodule.identity),
        methods=dict(methods),
        engine=type(components.engine).__name__,
        strategy=strategy_text(components.exploration),
        seed=config.seed,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        iterations=config.trainer.iterations,
        changed=changed,
        commit=git_commit(),
        versions=versions(),
        hardware=hardware(config.trainer.accelerator, components.processes),
        hub_data=_hub_data(settings["data"]),
    )


def strategy_text(strategy: Exploration) -> str:
    """Returns a strategy's class and settings: "NeighborMixing(rate=0.1, k=3)"; the module too where it is not ours."""
    own = type(strategy).__module__.startswith("ngrpo.")
    name = type(strategy).__qualname__ if own else f"{type(strategy).__module__}.{type(strategy).__qualname__}"
    own_fields: Any = strategy
    told = fields(own_fields) if is_dataclass(own_fields) else ()
    settings = [one.name for one in told if one.init and one.repr]
    return f"{name}({', '.join(f'{key}={reprlib.repr(getattr(strategy, key))}' for key in settings)})"


def _data(data: Mapping[str, Any]) -> str:
    sources = data.get("sources") or {}
    if not sources:
        return str(data.get("path"))
    return ", ".join(f"{name}: {source.get('path', '')}".rstrip(": ") for name, source in sources.items())


def _hub_data(data: Mapping[str, Any]) -> list[str]:
    paths = [source.get("path") for source in (data.get("sources") or {}).values()] or [data.get("path")]
    return sorted({name for name in map(hub_data_set, paths) if name is not None})


def _held_out(settings: Mapping[str, Any]) -> str:
    if settings["benchmark"]:
        return ", ".join(settings["benchmark"])
    data = settings["data"]
    held_out = data.get("eval_path")
    if held_out is None:
        return "held-out word problems" if data.get("path") == "demo" else ""
    return str(held_out)
