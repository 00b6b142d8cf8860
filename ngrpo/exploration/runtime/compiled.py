"""The functions of a strategy, compiled by torch.compile."""

import warnings
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException

from ngrpo.exploration.base import Exploration

_MOST = 300
"""Characters of a compiler's message that are shown."""

_OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"split_reductions": False}
"""A row is reduced by one program. Split into several, the sums of Soft Thinking's entropy end in a kernel that Triton
3.6 rejects; the other strategies' steps take about as long either way."""

_COMPILED: dict[tuple[object, ...], "_Compiled"] = {}
"""Kept for good: kernels are unloaded with the code that they belong to, and captured steps may still run them."""


def compiled(function: Callable[..., Any], strategy: Exploration, *branches: bool) -> Callable[..., Any]:
    """Returns ``function``, whose first argument is the strategy, compiled; strategies of equal settings share it.

    What a strategy's text does not show, such as a field with ``repr=False``, the compiler compares where it matters:
    code that read another value is compiled again. A class that is defined anew, as in a notebook, is another one.

    Where the compiler fails, which is reported once, it runs as it is.

    Args:
        function: tensor operations.
        strategy: its first argument.
        branches: which way the function goes where its arguments decide, such as whether one of them is None. Each way
            has code of its own: the compiler gives a function up that it has compiled eight times.
    """
    key = (function.__name__, branches, type(strategy), _text(strategy))
    if key not in _COMPILED:
        _COMPILED[key] = _Compiled(function)
    return partial(_COMPILED[key], strategy)


def _text(strategy: Exploration) -> str:
    """Returns the settings of a strategy; none of one whose text is an address, which each session's copy has anew."""
    return "" if type(strategy).__repr__ is object.__repr__ else repr(strategy)


class _Compiled:
    """See `compiled`.

    What fails is called again from its start. Most often nothing of it has run; after a graph break some may have,
    which is no harm to functions that write nothing, or the same values again, as these do.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        # Of its own code, since the compiler gives a piece of code up that it has compiled eight times.
        code, name = function.__code__.replace(), function.__name__
        own = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
        self.run: Callable[..., Any] = torch.compile(own, dynamic=True, options=_OPTIONS)

    def __call__(self, strategy: Exploration, *arguments: Any) -> Any:
        """Calls the function.

        Whole numbers among a strategy's settings, such as how many tokens it keeps, are constants. The compiler would
        keep them open, since ``dynamic=True`` lets every number change, and fails on kernels of such sizes for a GPU.
        """
        try:
            with torch._dynamo.config.patch(specialize_int=True):
                return self.run(strategy, *arguments)
        except TorchDynamoException as error:
            cause = error.inner_exception if isinstance(error, BackendCompilerFailed) else error
            warnings.warn(
                f"torch.compile fails on {self.plain.__name__} of {strategy}, which runs uncompiled instead: "
                f"{type(cause).__name__}: {str(cause)[:_MOST]}",
                stacklevel=2,
            )
            self.run = self.plain
            return self.run(strategy, *arguments)
