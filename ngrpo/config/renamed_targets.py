"""`_target_` strings under the names that the code had in earlier versions."""

import warnings
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ngrpo.compat.moved import current

_KEY = "_target_"


def rename(node: Any) -> None:
    """Gives every `_target_` of a configuration its present name, in place, and warns of each that it changes."""
    if isinstance(node, DictConfig) and not node._is_none():
        for key in node:
            if key == _KEY and isinstance(node[key], str) and (new := current(node[key])) != node[key]:
                warnings.warn(f"{_KEY}: {node[key]} is {new} now; write that.", FutureWarning, stacklevel=2)
                node[key] = new
            elif not OmegaConf.is_missing(node, key):
                rename(node[key])
    elif isinstance(node, ListConfig) and not node._is_none():
        for child in node:
            rename(child)


def as_stored_today(name: str, value: str) -> str:
    """Returns a stored setting's value, of a `_target_` under its present name."""
    return current(value) if name.rpartition(".")[2] == _KEY else value
