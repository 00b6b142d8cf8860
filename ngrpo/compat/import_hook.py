"""Finds modules under the names that they had."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from ngrpo.compat.moved import MODULES

_NONE = ModuleType("none")


class MovedModules(MetaPathFinder, Loader):
    """Gives the module at the new place, the very object, for an import of the old one."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a spec for a name that has moved, None for every other."""
        return ModuleSpec(fullname, self) if _new_name(fullname) is not None else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module at the new place."""
        new = _new_name(spec.name)
        assert new is not None
        warnings.warn(f"{spec.name} is {new} now; import it from there.", FutureWarning, stacklevel=6)
        module = import_module(new)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its own spec back, which the import system has replaced by that of the old name."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)


def _new_name(name: str) -> str | None:
    if name.startswith("callbacks.") and sys.modules.get("callbacks") is sys.modules.get("ngrpo.callbacks", _NONE):
        return f"ngrpo.{name}"
    return MODULES.get(name)


def install() -> None:
    """Puts the finder before all others, which would find files through the link to the folder of callbacks."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())


def serve_old_callbacks() -> ModuleType:
    """Returns the package of callbacks for ``import callbacks``; its modules are those of ``ngrpo.callbacks`` then."""
    warnings.warn("callbacks is ngrpo.callbacks now; import it from there.", FutureWarning, stacklevel=3)
    return import_module("ngrpo.callbacks")
