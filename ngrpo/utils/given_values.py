"""Values that a user has given: as plain Python scalars, and as error messages quote them."""

from typing import Any

_LONGEST = 40


def plain(value: Any) -> Any:
    """Returns the Python scalar in an array, a tensor or a NumPy scalar without dimensions; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def shown(value: Any) -> str:
    """Returns a value with its type, shortened: ``'good' (str)``."""
    if value is None:
        return "None"
    name = type(value).__name__
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of an integer with too many digits, or of a class of the user's
        return f"a value that cannot be shown ({name})"
    return f"{text if len(text) <= _LONGEST else text[:_LONGEST] + '...'} ({name})"
