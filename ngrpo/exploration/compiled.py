"""Functions of a strategy through torch.compile."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ngrpo.exploration.base import Exploration

_COMPILED: dict[str, Callable[..., Any]] = {}


def compiled(function: Callable[..., Any], strategy: Exploration) -> Callable[..., Any]:
    """Returns ``function``, whose first argument is the strategy, compiled; strategies of equal settings share it."""
    key = f"{function.__name__} {type(strategy).__module__}.{strategy!r}"
    if key not in _COMPILED:
        _COMPILED[key] = torch.compile(partial(function, strategy), dynamic=True)
    return _COMPILED[key]
