"""The settings of a file of conf/, with type and meaning."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hydra.utils import get_object

from ngrpo.config.type_check import name, options
from reference_pages.docstrings import meanings, summary
from reference_pages.markdown import linked
from reference_pages.presets import CHOICE, CONF, read

IN_WORDS = ("group", "class or function")
"""Types that are no annotation."""

_SCALARS = (bool, int, float, str, type(None))
_FOR_DEMO = re.compile(r"^\$\{for_demo:\$\{model\.path\},(.*?),(.*)\}$")
_REFERENCE = re.compile(r"^\$\{([\w.]+)\}$")


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        path: as it is typed: ``trainer.max_time``; with a plus where the yaml does not have it.
        type: of its value.
        default: as a person would say it.
        meaning: from a docstring; empty if there is none.
    """

    path: str
    type: str
    default: str
    meaning: str


def settings_of(node: Mapping[str, Any], path: str, owner: Any = None) -> Iterator[Setting]:
    """Goes through a node and what it holds.

    Args:
        node: as `read` returns it.
        path: of the node.
        owner: the class or function that it configures, or a schema's dataclass; of a `_target_` node that target.
    """
    owner = get_object(node["_target_"]) if _builds(node) else owner
    hints = {} if owner is None else _hints(owner)
    said = {} if owner is None else meanings(owner)
    for key, value in node.items():
        if key.startswith("_"):
            continue
        place = f"{path}.{key}".lstrip(".")
        meaning = said.get(key, "")
        if isinstance(value, dict) and CHOICE in value:
            yield from _chosen(value, place, meaning)
        elif _builds(value):
            target = value["_target_"]
            yield Setting(f"{place}._target_", IN_WORDS[1], linked(target), meaning or summary(get_object(target)))
            yield from settings_of(value, place)
        elif isinstance(value, dict) and is_dataclass(hints.get(key)):
            yield from settings_of(value, place, hints[key])
        else:
            yield Setting(place, _type(hints.get(key, Any), value), shown(value), meaning)
    if _builds(node):
        yield from _further(node, path, owner, hints, said)


def _chosen(value: Mapping[str, Any], place: str, meaning: str) -> Iterator[Setting]:
    """Goes through a part that is chosen by name, and what is set on top of it."""
    group = place.replace(".", "/")
    yield Setting(place, IN_WORDS[0], f"[{_word(value.get(CHOICE))}](#{anchor(group)})", meaning)
    if above := {key: above for key, above in value.items() if key != CHOICE}:
        chosen = {} if value.get(CHOICE) is None else read(CONF / group / f"{value[CHOICE]}.yaml")
        owner = get_object(chosen["_target_"]) if _builds(chosen) else None
        yield from settings_of(above, place, owner)


def _further(
    node: Mapping[str, Any], path: str, owner: Any, hints: Mapping[str, Any], said: Mapping[str, str]
) -> Iterator[Setting]:
    """Goes through plain settings that a target has and its yaml does not write out."""
    for key, parameter in inspect.signature(owner).parameters.items():
        hint = hints.get(key, Any)
        if key not in node and parameter.default is not parameter.empty and key in said and _plain(hint):
            yield Setting(f"+{path}.{key}", name(hint), shown(parameter.default), said[key])


def _plain(hint: Any) -> bool:
    """Tells whether an annotation is of scalars, and of lists of them."""
    return all(
        option in _SCALARS
        or get_origin(option) is Literal
        or (get_origin(option) in (list, tuple) and _scalars(option))
        for option in options(hint)
    )


def _scalars(hint: Any) -> bool:
    return all(part is ... or part in _SCALARS for part in get_args(hint))


def _builds(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("_target_"), str) and value["_target_"] != "???"


def anchor(group: str) -> str:
    """Returns the anchor of a group's section."""
    return "group-" + group.replace("/", "-").replace("_", "-")


def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner.__init__ if inspect.isclass(owner) and not is_dataclass(owner) else owner)


def _type(hint: Any, value: Any) -> str:
    if hint is Any:
        return "any" if value is None or isinstance(value, str) else type(value).__name__
    return name(hint)


def shown(value: Any) -> str:
    """Returns a value as code, and interpolations in words."""
    if value == "???":
        return "to be given"
    if isinstance(value, str) and (match := _FOR_DEMO.match(value)):
        return f"`{match[1]}` for the demo, else `{match[2]}`"
    if isinstance(value, str) and (match := _REFERENCE.match(value)):
        return f"that of `{match[1]}`"
    return f"`{_word(value)}`" if value != "" else "empty"


def _word(value: Any) -> str:
    """Returns a value as yaml writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
