"""The comparison of a value from a configuration with a type annotation."""

import contextlib
import inspect
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, ListConfig

_SCALARS = (bool, int, float, str, types.NoneType)


def hints_of(target: Any) -> dict[str, Any]:
    """Returns the annotations of a target's parameters; those whose names only a type checker knows are left out."""
    function = target.__init__ if inspect.isclass(target) else target
    written = dict(getattr(function, "__annotations__", {}))
    known: dict[str, Any] = {}
    for parameter, annotation in written.items():
        alone = types.FunctionType((lambda: None).__code__, getattr(function, "__globals__", {}))
        alone.__annotations__ = {parameter: annotation}
        with contextlib.suppress(NameError, AttributeError):
            known |= get_type_hints(alone)
    return known


def fits(value: Any, hint: Any) -> bool:
    """Compares scalars and the elements of lists with an annotation; what it cannot judge fits.

    Args:
        value: a scalar, ListConfig or DictConfig.
        hint: an annotation with its names resolved.
    """
    return any(_fits_one(value, option) for option in options(hint))


def options(hint: Any) -> tuple[Any, ...]:
    """Returns the members of a union, any other annotation alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def name(hint: Any) -> str:
    """Returns an annotation as a person writes it, classes without their modules."""
    return " | ".join(_name(option) for option in options(hint))


def _name(hint: Any) -> str:
    if hint is types.NoneType:
        return "None"
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("collections.abc.", "")


def _fits_one(value: Any, hint: Any) -> bool:
    if hint is Any or hint is object:
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if isinstance(value, ListConfig):
        return _list_fits(value, hint, origin)
    if isinstance(value, DictConfig):
        return hint not in _SCALARS
    if hint in _SCALARS:
        return type(value) is hint or (hint is float and type(value) is int)
    if hint is Path:
        return isinstance(value, str)
    # No class but a scalar's is made from a scalar; type variables and the like are left to the target.
    return not (isinstance(hint, type) or origin is not None)


def _list_fits(value: ListConfig, hint: Any, origin: Any) -> bool:
    if hint in _SCALARS:
        return False
    if origin not in (list, tuple, Sequence):
        return True
    elements = get_args(hint)
    if origin is tuple and len(elements) > 1 and elements[1] is not ...:
        return len(value) == len(elements) and all(map(fits, value, elements))
    return all(fits(element, elements[0]) for element in value)
