"""The files of conf/ as Hydra composes them within their group."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from reference_pages.packages import ROOT

CONF = ROOT / "conf"
CHOICE = "_choice_"
"""Key under which a part that is a group itself names its file."""


def yaml_files(group: str) -> list[Path]:
    """Returns a group's files."""
    return sorted((CONF / group).glob("*.yaml"))


def read(path: Path) -> dict[str, Any]:
    """Returns what a file sets, with that of the files that it begins from; interpolations stay as they are.

    A part that is chosen by ``defaults`` becomes ``{CHOICE: its file}`` and what is set on top of it; ``null`` chooses
    none. What a file changes outside its group (``override /...``) is not in it.
    """
    content = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(content, dict)
    entries = content.pop("defaults", [])
    made: dict[str, Any] = {}
    for entry in entries if "_self_" in entries else [*entries, "_self_"]:
        if entry == "_self_":
            made = _merged(made, content)
        elif isinstance(entry, str):
            made = _merged(made, read(path.with_name(f"{entry}.yaml")))
        else:
            ((key, name),) = entry.items()
            key = key.removeprefix("override ")
            made.pop(key, None)
            made |= {} if "/" in key or name is None else {key: {CHOICE: name}}
    return made


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(below[key], above[key]) for key in below.keys() & above.keys() if _dicts(below[key], above[key])
    }
    return below | above | both


def _dicts(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)
