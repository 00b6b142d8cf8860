"""Old names as attributes of the modules and packages that they have left."""

import sys
import warnings
from pkgutil import resolve_name
from typing import Any

from ngrpo.compat.moved import moved_out_of


def serve_old_names(module: str) -> None:
    """Lets a module give what has moved out of it, each with a warning when it is first asked for.

    To be called where the module is defined. A ``__getattr__`` written there would do the same, and take every name
    that is asked of the module out of the type checker's sight.

    Args:
        module: its ``__name__``.
    """
    moved = moved_out_of(module)
    attributes = vars(sys.modules[module])

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is {moved[name]} now; import it from there.", FutureWarning, stacklevel=2)
        # An import asks twice for what it takes out of a package.
        return attributes.setdefault(name, resolve_name(moved[name]))

    attributes["__getattr__"] = __getattr__
