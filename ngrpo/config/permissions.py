"""Permissions that are typed on the command line, and that no file can give itself."""

import importlib.util
import pkgutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf

from ngrpo.config.allowlist import check_allowed
from ngrpo.config.renamed_targets import rename
from ngrpo.errors import SettingError

_REMOTE_CODE = "trust_remote_code"
_OPTIONS = "rollout.engine.options"

Typed = Mapping[str, Sequence[Any]]
"""Values from the command line by dotted setting; several where a sweep gives several."""


def typed_settings(overrides: Iterable[str]) -> Typed:
    """Returns the settings that overrides give, those within mappings and lists too.

    What cannot be parsed gives none: Hydra refuses it.
    """
    parser, found = OverridesParser.create(), dict[str, list[Any]]()
    for text in overrides:
        try:
            override = parser.parse_override(text)
            for value in _values(override):
                for name, leaf in _leaves(override.key_or_group, value):
                    found.setdefault(name, []).append(leaf)
        except HydraException:
            continue
    return found


def typed(overrides: Iterable[str]) -> list[str]:
    """Returns the targets in overrides from the command line, whose author is the one who runs them."""
    return _targets(typed_settings(overrides))


def grant(config: DictConfig, overrides: Sequence[str], folder: Path | None = None) -> None:
    """Puts into ``allow_targets`` what the command line permits.

    Args:
        config: composed; changed in place.
        overrides: from the command line itself, not those that Hydra tells of: a file can add to them.
        folder: ``--config-dir``: goes on the Python path, and its modules are permitted.

    Raises:
        SettingError: the configuration has a permission that was not typed.
    """
    settings = typed_settings(overrides)
    permitted = [str(value) for name, values in settings.items() if _lists_targets(name) for value in values]
    for value in config.get("allow_targets") or []:
        if value not in permitted:
            raise _not_typed("allow_targets", f"[{value}]")
    for name, value in _present(config, ""):
        if _permits(name, value) and value not in settings.get(name, ()):
            raise _not_typed(name, value)
    config.allow_targets = [*permitted, *_targets(settings), *modules_of(folder)]


def check_listed(place: str, overrides: Iterable[str], settings: Typed) -> None:
    """Refuses overrides that a file lists for another script's command line, where they would count as typed.

    Args:
        place: where they are listed, for messages.
        overrides: the list.
        settings: typed for the script that reads the file; what is among their values was typed.

    Raises:
        SettingError: one permits something, or is an option.
    """
    typed_values = {str(value) for values in settings.values() for value in values}
    for text in overrides:
        if text in typed_values:
            continue
        leaves = [(name, value) for name, values in typed_settings([text]).items() for value in values]
        permits = any(
            _lists_targets(name) or name.endswith("_target_") or name.startswith("hydra") or _permits(name, value)
            for name, value in leaves
        )
        if permits or text.startswith("-"):
            raise SettingError(
                f"{place} has {text}, a permission that a file gives itself; take it out there, or type it on the "
                "command line of the script that it is for."
            )


def modules_of(folder: Path | None) -> list[str]:
    """Puts a folder on the Python path, and returns the modules that Python finds in that very folder.

    Raises:
        SettingError: it is no folder.
    """
    if folder is None:
        return []
    folder = folder.resolve()
    if not folder.is_dir():
        raise SettingError(f"--config-dir {folder} is no folder; give one with yaml files and modules.")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last, so that a file there cannot take the place of a library
    names = {module.name for module in pkgutil.iter_modules([str(folder)])}
    names |= {path.name for path in folder.iterdir() if path.is_dir() and path.name.isidentifier()}
    return sorted(name for name in names if _lies_in(name, folder))


@dataclass(frozen=True)
class StoredPermissions:
    """What the command line of a script permits the settings of a stored run, whose own permissions do not count.

    Attributes:
        targets: modules, or targets, of ``--allow-targets`` and ``--config-dir``.
        remote_code: ``--trust-remote-code``.
    """

    targets: Sequence[str] = ()
    remote_code: bool = False

    @staticmethod
    def add_options(parser: ArgumentParser) -> None:
        """Adds the three options."""
        parser.add_argument("--allow-targets", nargs="+", default=[], metavar="MODULE", help="that the run may name")
        parser.add_argument("--config-dir", type=Path, help="a folder whose modules the run may name")
        parser.add_argument("--trust-remote-code", action="store_true", help="run the code that the model brings")

    @classmethod
    def of(cls, arguments: Namespace) -> "StoredPermissions":
        """Reads the three options."""
        targets = [*arguments.allow_targets, *modules_of(arguments.config_dir)]
        return cls(targets, arguments.trust_remote_code)

    def checked(self, config: Any, names: Sequence[str]) -> list[DictConfig]:
        """Returns the named parts of a stored configuration, with nothing but these permissions.

        Raises:
            SettingError: one is missing, or names code that is not permitted.
        """
        parts = []
        for name in names:
            node = config.get(name) if isinstance(config, DictConfig) else None
            if not isinstance(node, DictConfig) or not isinstance(node.get("_target_"), str):
                raise SettingError(
                    f"the settings of the run say nothing that can be built for {name}; they are damaged."
                )
            rename(node)
            check_allowed(node, self.targets, name)
            self._check_remote_code(node)
            parts.append(node)
        return parts

    def _check_remote_code(self, node: DictConfig) -> None:
        if _REMOTE_CODE not in node:
            return
        if node[_REMOTE_CODE] and not self.remote_code:
            raise SettingError(
                f"the run was made with {_REMOTE_CODE}=true for the model {node.get('path')}; if you trust the code "
                "that comes with it, add --trust-remote-code."
            )


def _values(override: Override) -> Iterator[Any]:
    yield from override.sweep_iterator() if override.is_sweep_override() else [override.value()]


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in pairs:
            yield from _leaves(f"{name}.{key}", inner)
    else:
        yield name, value


def _present(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the values of a configuration, those behind interpolations too."""
    if isinstance(node, DictConfig):
        for key in node:
            if not OmegaConf.is_missing(node, key):
                yield from _present(node[key], f"{name}.{key!s}".lstrip("."))
    elif isinstance(node, ListConfig):
        for index, child in enumerate(node):
            yield from _present(child, f"{name}.{index}")
    else:
        yield name, node


def _lists_targets(name: str) -> bool:
    return name == "allow_targets" or name.startswith("allow_targets.")


def _targets(settings: Typed) -> list[str]:
    return [str(value) for name, values in settings.items() if name.endswith("_target_") for value in values]


def _permits(name: str, value: Any) -> bool:
    """Whether a setting runs code of others: that of a model, or what a text among vLLM's options may name."""
    if name.rpartition(".")[2] == _REMOTE_CODE:
        return bool(value)
    return name.startswith(f"{_OPTIONS}.") and isinstance(value, str)


def _not_typed(name: str, value: Any) -> SettingError:
    value = str(value).lower() if isinstance(value, bool) else value
    return SettingError(
        f"{name}={value} is a permission that a file of the configuration gives itself; take it out there, and if you "
        f"trust it, type {name}={value} on the command line."
    )


def _lies_in(name: str, folder: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or [])
    return bool(places) and all(folder in Path(place).resolve().parents for place in places)
