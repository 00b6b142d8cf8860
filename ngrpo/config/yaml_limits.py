"""Limits on a user's YAML file: how large and deep it may be once its aliases are written out."""

from pathlib import Path
from typing import NamedTuple

import yaml  # type: ignore[import-untyped]

from ngrpo.errors import SettingError
from ngrpo.utils.input_files import read_text

MOST_NODES = 100_000
"""Keys and values, each as often as aliases repeat it; the configurations of this program have some hundreds."""

MOST_LEVELS = 50
"""Mappings and lists within one another; those have some five. Python's own limit would do, but libraries raise it."""


class _Size(NamedTuple):
    nodes: int
    levels: int


_WITHIN_ITSELF = _Size(0, MOST_LEVELS + 1)


def check_file(path: Path) -> None:
    """Refuses a file of settings that is no text, or too large or deep to be composed; see `check_text`.

    Raises:
        SettingError: names the file.
    """
    check_text(read_text(path, "settings"), path)


def check_text(text: str, path: Path) -> None:
    """Refuses YAML whose aliases write out to more than `MOST_NODES` nodes, or to more than `MOST_LEVELS` levels.

    Nine anchors, each a list of nine aliases of the one before, are nine lines and 400 million values.

    Args:
        text: its content. What is wrong with its syntax is left to the one who reads it.
        path: where it comes from, for the message.

    Raises:
        SettingError: names the file.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        size = _Size(0, 0) if root is None else _written_out(root, {})
    except yaml.YAMLError:
        return
    except RecursionError:
        size = _WITHIN_ITSELF
    if size.levels > MOST_LEVELS:
        raise SettingError(f"{path} is nested more than {MOST_LEVELS} levels deep, or within itself; write it flatter.")
    if size.nodes > MOST_NODES:
        raise SettingError(f"{path} holds more than {MOST_NODES} values once its aliases are written out; shorten it.")


def _written_out(node: yaml.Node, known: dict[int, _Size]) -> _Size:
    """Returns the nodes below and with one, as a tree, and its levels; each is walked through once.

    Args:
        node: the root of the tree.
        known: by id, of nodes that have been counted, or are being counted; filled in.
    """
    if isinstance(node, yaml.ScalarNode):
        return _Size(1, 0)
    if id(node) not in known:
        known[id(node)] = _WITHIN_ITSELF
        pairs = isinstance(node, yaml.MappingNode)
        children = [child for pair in node.value for child in pair] if pairs else node.value
        sizes = [_written_out(child, known) for child in children]
        known[id(node)] = _Size(1 + sum(one.nodes for one in sizes), 1 + max((one.levels for one in sizes), default=0))
    return known[id(node)]
