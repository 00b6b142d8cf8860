"""Values that a user has given: as plain Python scalars, and as error messages quote them."""

from typing import Any

import numpy as np
import torch

_LONGEST = 40


def plain(value: Any) -> Any:
    """Returns the Python scalar in an array, a tensor or a NumPy scalar without dimensions; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def as_written(value: Any) -> Any:
    """Returns the same, but a float of few bits as one writes it: 0.1, where ``plain`` gives 17 digits."""
    scalar = plain(value)
    if not isinstance(scalar, float) or not isinstance(value, np.generic | np.ndarray | torch.Tensor):
        return scalar
    if isinstance(value, torch.Tensor):
        exact = value.dtype in (torch.float16, torch.float32, torch.float64)  # NumPy has no others
        value = (value if exact else value.float()).numpy(force=True)
    return float(str(value))


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
