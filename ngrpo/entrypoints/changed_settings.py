"""The settings of a run that differ from the defaults of what it has chosen."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ngrpo.config.earlier_settings import flat
from ngrpo.config.override_quoting import quoted
from ngrpo.entrypoints.hydra_main import CONF

_ROOT = "train"
_NOT_LISTED = ("experiment", "debug", "schema", "hydra/")
"""Groups that stand for settings of other groups, which are listed in their stead, and what is no setting of a run."""
_NOTHING = "null"
_AS_TYPED = {"None": _NOTHING, "True": "true", "False": "false"}
_OF_THE_COMMAND = ("ckpt", "allow_targets")
"""Settings that concern one command, not the run."""


def changed_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns choices of groups that are not the defaults, then settings that are not those of the choices.

    Args:
        settings: the whole configuration as plain values, see `ngrpo.config.environment.stored`.

    Returns:
        Values as text by name, such as ``{"algo": "gspo", "trainer.iterations": "60"}``; empty where this program has
        not composed the settings, or cannot compose what they were chosen from.
    """
    if not HydraConfig.initialized():
        return {}
    hydra = HydraConfig.get()
    named = dict(text.split("=", 1) for text in hydra.overrides.task if "=" in text)
    choices = {
        group: choice for group, choice in _choices(hydra.runtime.choices).items() if "/" not in group or group in named
    }
    lists = {
        group: text for group, text in named.items() if text.startswith("[") and isinstance(settings.get(group), dict)
    }
    typed = [text for text in hydra.overrides.hydra if text.startswith("hydra")]
    model = str(settings["model"]["path"])
    try:
        default = _composed(typed)
        usual = _choices(default.hydra.runtime.choices)
        reference = _composed([*typed, *_choosing(choices, usual), f"model.path={quoted(model)}"])
        expected = _flat(reference) | {"model.path": str(default.model.path)}
    except (HydraException, OmegaConfBaseException):
        return {}
    changed = {group: choice for group, choice in choices.items() if usual.get(group, _NOTHING) != choice}
    own = {name: value for name, value in flat(dict(settings)) if expected.get(name) != value}
    told = (*_OF_THE_COMMAND, *(f"{group}." for group in lists))
    return (
        changed | lists | {name: _AS_TYPED.get(text, text) for name, text in own.items() if not name.startswith(told)}
    )


def _choices(chosen: Mapping[str, Any]) -> dict[str, str]:
    return {
        group: _NOTHING if choice is None else str(choice)
        for group, choice in chosen.items()
        if not group.startswith(_NOT_LISTED)
    }


def _choosing(choices: Mapping[str, str], usual: Mapping[str, str]) -> list[str]:
    """Returns the overrides by which one makes these choices; those that are usual are made anyway."""
    other = {group: choice for group, choice in choices.items() if usual.get(group) != choice}
    return [f"~{group}" if choice == _NOTHING else f"{group}={choice}" for group, choice in other.items()]


def _composed(overrides: list[str]) -> DictConfig:
    running = GlobalHydra.instance().is_initialized()
    own = nullcontext() if running else initialize_config_dir(version_base="1.3", config_dir=str(CONF))
    with own:
        return compose(_ROOT, overrides=overrides, return_hydra_config=True)


def _flat(composed: DictConfig) -> dict[str, str]:
    with open_dict(composed):
        del composed["hydra"]
    plain: Any = OmegaConf.to_container(composed, resolve=True)
    return dict(flat(plain))
