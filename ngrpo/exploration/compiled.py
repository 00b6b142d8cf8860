"""Functions of a strategy through torch.compile."""

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch

from ngrpo.exploration.base import Exploration

_COMPILED: dict[str, Callable[..., Any]] = {}


def compiled(function: Callable[..., Any], strategy: Exploration) -> Callable[..., Any]:
    """Returns ``function``, whose first argument is the strategy, compiled; strategies of equal settings share it."""
    key = f"{function.__name__} {type(strategy).__module__}.{strategy!r}"
    if key not in _COMPILED:
        # Of its own code, since the compiler gives a piece of code up that it has compiled eight times.
        code, name = function.__code__.replace(), function.__name__
        own = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
        _COMPILED[key] = partial(torch.compile(own, dynamic=True), strategy)
    return _COMPILED[key]
