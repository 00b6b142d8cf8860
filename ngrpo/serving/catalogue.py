"""The strategies that requests may name, built from a name and numbers: no code, no text comes from a request."""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ngrpo.config.instantiate import build, target_of
from ngrpo.config.type_check import fits, hints_of, name
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.utils.given_values import shown

_MOST_KEPT = 256
"""Strategies that are not built again for each request: building one takes milliseconds."""

_MOST_LISTED = 4096
"""Numbers in a list, such as ``excluded_ids``."""

_INTEGERS = 2**63
"""Whole numbers of PyTorch are smaller; beyond them a strategy fails in the middle of its step."""


class Catalogue:
    """The presets of the package, and the strategy of the server's own settings, which keeps these.

    Args:
        presets: nodes of strategies by name.
        chosen: name of the server's own.
        own: its node, as it was set.
    """

    def __init__(self, presets: Mapping[str, DictConfig], chosen: str, own: DictConfig) -> None:
        self._nodes = {**presets, chosen: own}
        self._chosen = chosen
        self._lock = threading.Lock()
        self._made: OrderedDict[str, Exploration] = OrderedDict()

    def strategy(self, named: Mapping[str, Any] | None) -> Exploration:
        """Returns the strategy that a request asks for; the server's own where it asks for none.

        Args:
            named: ``name`` and numbers.

        Raises:
            SettingError: there is no such strategy, or a setting is no number of it.
        """
        settings = dict(named or {})
        asked = json.dumps(settings, sort_keys=True)
        with self._lock:
            if asked in self._made:
                self._made.move_to_end(asked)
                return self._made[asked]
        made = self._build(settings)
        with self._lock:
            self._made[asked] = made
            while len(self._made) > _MOST_KEPT:
                self._made.popitem(last=False)
        return made

    def _build(self, settings: dict[str, Any]) -> Exploration:
        chosen = settings.pop("name", self._chosen)
        if not isinstance(chosen, str) or chosen not in self._nodes:
            known = ", ".join(sorted(self._nodes))
            raise SettingError(f"exploration.name={shown(chosen)} is no strategy; choose one of {known}.")
        node = self._nodes[chosen].copy()
        for key, value in settings.items():
            self._set(node, chosen, key, value)
        made: Exploration = build(node)
        return made

    def described(self) -> dict[str, dict[str, Any]]:
        """Returns the class and all settings of every strategy, by the name that requests give."""
        return {one: description(build(node)) for one, node in self._nodes.items()}

    def _set(self, node: DictConfig, chosen: str, key: str, value: Any) -> None:
        known = [str(one) for one in node if not str(one).startswith("_")]
        if key not in known:
            listed = ", ".join(known) or "none"
            raise SettingError(f"exploration.{key[:40]} is no setting of {chosen}; it has {listed}.")
        if isinstance(node[key], str) or not _is_number(value):
            raise SettingError(
                f"exploration.{key}={shown(value)} is no number, and requests may change numbers only; start the "
                f"server with exploration={chosen} and this setting, or leave it out."
            )
        if type(value) is int and abs(value) >= _INTEGERS:
            raise SettingError(f"exploration.{key}={shown(value)} is no number of 64 bits; ask for a smaller one.")
        held = ListConfig(value) if isinstance(value, list) else value
        hint = hints_of(target_of(node)).get(key, Any)
        if not fits(held, hint):
            raise SettingError(f"exploration.{key}={shown(value)} does not fit; {chosen} takes {name(hint)}.")
        node[key] = value


def description(strategy: Exploration) -> dict[str, Any]:
    """Returns the class of a strategy and its settings, as JSON has them; none of a class without declared settings."""
    kind = type(strategy)
    declared: Any = strategy
    told = fields(declared) if is_dataclass(declared) else ()
    values = {one.name: getattr(strategy, one.name) for one in told if one.init}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "settings": plain}


def read_presets(folder: Path, config: DictConfig) -> dict[str, DictConfig]:
    """Reads the presets of ``exploration`` by name; those that name no class, such as ``custom``, are left out.

    Args:
        folder: of the package's configuration.
        config: checked; what the presets take from other settings, such as the model's path, comes from it.
    """
    found = {}
    for path in sorted((folder / "exploration").glob("*.yaml")):
        node = _read(path)
        if not OmegaConf.is_missing(node, "_target_"):
            around = OmegaConf.create({"model": {"path": config.model.path}, "exploration": node})
            OmegaConf.resolve(around)
            found[path.stem] = around.exploration
    return found


def _read(path: Path) -> DictConfig:
    """Reads a preset, and before it those that its list of defaults names."""
    own = OmegaConf.load(path)
    assert isinstance(own, DictConfig)
    parts = [_read(path.with_name(f"{one}.yaml")) for one in own.pop("defaults", []) if one != "_self_"]
    merged = OmegaConf.merge(*parts, own)
    assert isinstance(merged, DictConfig)
    return merged


def _is_number(value: Any) -> bool:
    """Says whether a value is a number, a boolean or null, or a list of whole numbers."""
    if isinstance(value, list):
        return len(value) <= _MOST_LISTED and all(type(one) is int for one in value)
    return value is None or type(value) in (bool, int, float)
