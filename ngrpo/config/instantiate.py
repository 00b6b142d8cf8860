"""Objects built from `_target_` nodes."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig

from ngrpo.errors import SettingError
from ngrpo.utils.author_code import from_author

_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def build(node: DictConfig, **available: Any) -> Any:
    """Instantiates a `_target_` node; the only caller of Hydra's ``instantiate``.

    Args:
        node: the node.
        available: objects by name, such as `ngrpo.entrypoints.run_parts.RunParts.by_name`; those that the target's
            signature names and the node leaves open are passed to it.

    Raises:
        SettingError: of the target's own making, or because it cannot be imported or lacks a setting.
    """
    target = target_of(node)
    parameters = parameters_of(node, target)
    if missing := sorted(getattr(target, "__abstractmethods__", ())):
        raise SettingError(
            f"_target_={node['_target_']} is a class without {', '.join(missing)}, which "
            "its base class leaves to it; define it."
        )
    named = {name for name, parameter in parameters.items() if parameter.kind not in _COLLECTING}
    passed = {name: value for name, value in available.items() if name in named and name not in node}
    if not node.get("_partial_"):
        _check_complete(node, [p for p in parameters.values() if p.name not in passed], sorted(available))
        _check_named(node, parameters, {*passed, *map(str, node)})
    for child in node.values():
        _check_children(child)
    # Passed to the partial, not to Hydra, which would turn dataclass objects into dictionaries.
    try:
        made = instantiate(node, _partial_=True, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, SettingError) or (cause is not None and from_author(cause)):
            raise cause from None
        reason = " ".join(str(error).split()).rstrip(".")
        raise SettingError(f"_target_={node['_target_']} cannot be used ({reason}); give another.") from error
    return partial(made, **passed) if node.get("_partial_") else made(**passed)


def build_kind(kind: type, node: DictConfig, **available: Any) -> Any:
    """Instantiates a `_target_` node that must make an object of one kind.

    Args:
        kind: the class, which may be abstract.
        node: as for `build`.
        available: as for `build`.

    Raises:
        SettingError: as `build`, or it makes something else.
    """
    made = build(node, **available)
    if not isinstance(made, kind):
        raise SettingError(
            f"_target_={node['_target_']} makes a {type(made).__name__}; name a class of {kind.__module__}."
            f"{kind.__name__}, or a function that returns one."
        )
    return made


def _check_complete(node: DictConfig, parameters: list[inspect.Parameter], available: list[str]) -> None:
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in _COLLECTING]
    missing = [name for name in required if name not in node]
    if not missing:
        return
    asked = f"; what it may ask for without a setting is {', '.join(available)}" if available else ""
    raise SettingError(
        f"_target_={node['_target_']} also needs {', '.join(missing)}; choose a preset that sets them, or add them"
        f"{asked}."
    )


def _check_named(node: DictConfig, parameters: Mapping[str, inspect.Parameter], given: set[str]) -> None:
    """Settings and parts are passed by name."""
    by_position = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY and p.name in given]
    if by_position:
        raise SettingError(
            f"_target_={node['_target_']} takes {', '.join(by_position)} by position only, and settings and parts of "
            "the run are passed by name; take the / out of its parameters."
        )


def _check_children(node: Any) -> None:
    """The nodes within a node, which Hydra builds."""
    if isinstance(node, ListConfig):
        for child in node:
            _check_children(child)
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node and not node.get("_partial_"):
        parameters = parameters_of(node, target_of(node))
        _check_complete(node, list(parameters.values()), [])
        _check_named(node, parameters, set(map(str, node)))
    for child in node.values():
        _check_children(child)


def target_of(node: DictConfig) -> Callable[..., Any]:
    """Imports what a node names.

    Raises:
        SettingError: there is no such thing.
    """
    try:
        return get_object(node["_target_"])
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SettingError(
            f"_target_={node['_target_']} cannot be imported ({reason}); give the dotted path of a class or function."
        ) from error


def parameters_of(node: DictConfig, target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a node's target.

    Raises:
        SettingError: Python does not know them.
    """
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"_target_={node['_target_']} has no parameters that Python knows; give the dotted path of a class or "
            "function that is written in Python."
        ) from error
