"""`_target_` strings under the names that the code had in earlier versions."""

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ngrpo.compat.moved import current
from ngrpo.config.removed_choices import check_target

_KEY = "_target_"


def rename(node: Any, path: str = "") -> list[str]:
    """Gives every `_target_` of a configuration its present name, in place.

    Args:
        node: the configuration or a part of it.
        path: of that part.

    Returns:
        A sentence for each that had another name.

    Raises:
        SettingError: one is no more.
    """
    sentences = []
    for key, child in _children(node):
        setting = f"{path}.{key}".lstrip(".")
        if key == _KEY and isinstance(child, str):
            check_target(setting, child)
            node[key] = current(child)
            if node[key] != child:
                sentences.append(f"{setting}={child} has moved; write {setting}={node[key]}.")
        else:
            sentences += rename(child, setting)
    return sentences


def as_stored_today(name: str, value: str) -> str:
    """Returns a stored setting's value, of a `_target_` under its present name."""
    return current(value) if name.rpartition(".")[2] == _KEY else value


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, DictConfig):
        yield from ((key, node[key]) for key in list(node) if not OmegaConf.is_missing(node, key))
    elif isinstance(node, ListConfig):
        yield from ((key, node[key]) for key in range(len(node)) if not OmegaConf.is_missing(node, key))
