"""Names out of modules that are packages today."""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ngrpo.compat.moved import NAMES, PACKAGES


def moved_from(package: str) -> Callable[[str], Any]:
    """Returns a ``__getattr__`` for a package that was a module: what was in it is given, with a warning."""

    def attribute(name: str) -> Any:
        place = NAMES.get(f"{package}.{name}", f"{PACKAGES[package]}.{name}").rpartition(".")[0]
        if name.startswith("__") or find_spec(f"{package}.{name}") is not None:  # a module below, not loaded yet
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(place), name, None)
        if found is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        warnings.warn(f"{package}.{name} is {place}.{name} now; import it from there.", FutureWarning, stacklevel=2)
        return found

    return attribute
