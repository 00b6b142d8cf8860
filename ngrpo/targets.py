"""Which code a configuration may name: naming it means running it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig

from ngrpo.errors import SettingError

ALLOWED = ("ngrpo", "callbacks", "torch.optim", "lightning.pytorch.loggers", "lightning.pytorch.callbacks")
"""Packages that every configuration may name; ``allow_targets`` adds to them."""

_TYPED = re.compile(r"""_target_['"]?\s*[=:]\s*['"]?([\w.]+)""")


def typed(overrides: Iterable[str]) -> list[str]:
    """Returns the targets in overrides from the command line, whose author is the one who runs them."""
    return [target for override in overrides for target in _TYPED.findall(override)]


def check_allowed(config: Any, further: Sequence[str], path: str = "") -> None:
    """Refuses targets outside the allowed packages, also those that an allowed module merely imports.

    Args:
        config: a configuration or a part of it.
        further: modules, or targets, that the user allows beside `ALLOWED`.
        path: of that part.

    Raises:
        SettingError: a target is refused; it was not imported.
    """
    for key, target in _targets(config, path):
        if below(target, further):
            continue
        if not below(target, ALLOWED) or not below(_home(target), ALLOWED):
            raise SettingError(
                f"{key}={target} is outside the packages that a configuration may name ({', '.join(ALLOWED)}); if you "
                f"trust it, set allow_targets=[{target.rpartition('.')[0] or target}]."
            )


def _targets(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, DictConfig):
        if isinstance(node.get("_target_"), str):
            yield f"{path}._target_".lstrip("."), node["_target_"]
        for key, child in node.items():
            yield from _targets(child, f"{path}.{key!s}".lstrip("."))
    elif isinstance(node, ListConfig):
        for index, child in enumerate(node):
            yield from _targets(child, f"{path}.{index}")


def _home(target: str) -> str:
    """Returns the module that defines a target of an allowed package; the target itself if it cannot be imported."""
    try:
        return str(getattr(get_object(target), "__module__", target))
    except Exception:
        return target


def below(name: str, packages: Sequence[str]) -> bool:
    """Says whether a dotted name is one of some others, or lies below one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)
