"""The finder of modules under the names that they had."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pkgutil import iter_modules
from types import ModuleType

from ngrpo.compat.moved import CALLBACKS, MODULES


class MovedModules(MetaPathFinder, Loader):
    """Gives the module at the new place, the very object, for an import of the old one.

    Args:
        moved: new names by old ones.
    """

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved = moved

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a spec for a name that has moved, None for every other."""
        return ModuleSpec(fullname, self) if fullname in self._moved else None

    def exec_module(self, module: ModuleType) -> None:
        """Puts the module at the new place where the import system will look for the one just made."""
        old = module.__name__
        new = self._moved[old]
        warnings.warn(f"{old} is {new} now; import it from there.", FutureWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


def install() -> None:
    """Serves the modules of this package under their old names."""
    _first(MovedModules(MODULES))


def serve_old_callbacks() -> ModuleType:
    """Returns the package of callbacks for ``import callbacks``, and serves its modules under such names from then on.

    Only a checkout has a folder of that name for Python to find; elsewhere it may be the user's.
    """
    warnings.warn("callbacks is ngrpo.callbacks now; import it from there.", FutureWarning, stacklevel=3)
    package = import_module("ngrpo.callbacks")
    present = {
        f"callbacks.{module.name}": f"ngrpo.callbacks.{module.name}" for module in iter_modules(package.__path__)
    }
    _first(MovedModules(present | dict(CALLBACKS)))
    return package


def _first(finder: MovedModules) -> None:
    """Before all others: those would find the files of callbacks a second time, through the checkout's link."""
    sys.meta_path.insert(0, finder)
