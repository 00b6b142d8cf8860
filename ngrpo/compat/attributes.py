"""Names as attributes of modules that do not define them: old ones, and those that are imported when asked for."""

import sys
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from pkgutil import resolve_name
from typing import Any

from ngrpo.compat.moved import moved_out_of


def serve_old_names(
    module: str,
    present: Mapping[str, str] | None = None,
    importing: str | None = None,
) -> None:
    """Lets a module give what has moved out of it, each with a warning when it is first asked for.

    To be called where the module is defined. A ``__getattr__`` written there would do the same, and take every name
    that is asked of the module out of the type checker's sight.

    Args:
        module: its ``__name__``.
        present: names that are no old ones, and are imported without a warning when they are first asked for; where
            each is defined.
        importing: where a context manager is defined that such a name is imported in, and is told.
    """
    moved, defined = moved_out_of(module), dict(present or {})
    attributes = vars(sys.modules[module])

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in defined:
            with resolve_name(importing)(f"{module}.{name}") if importing else nullcontext():
                return attributes.setdefault(name, resolve_name(f"{defined[name]}:{name}"))
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is {moved[name]} now; import it from there.", FutureWarning, stacklevel=2)
        # An import asks twice for what it takes out of a package.
        return attributes.setdefault(name, resolve_name(moved[name]))

    attributes["__getattr__"] = __getattr__
