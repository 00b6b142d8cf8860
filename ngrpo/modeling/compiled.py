"""Functions that run compiled on a GPU: what they read and write there goes through memory once."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def compiled_for(tensor: Tensor, function: Callable[..., T], fixed: Sequence[int] = ()) -> Callable[..., T]:
    """Returns the function, compiled if ``tensor`` is on a GPU.

    Args:
        tensor: its first argument.
        function: compiled once for all sizes.
        fixed: dimensions of the tensor that have the same size in every call. The compiler then divides by a constant
            where it takes a number's place apart, which costs several times the arithmetic of a softmax otherwise.
    """
    if not tensor.is_cuda:
        return function
    fix(tensor, fixed)
    return _compiled(function)


def fix(tensor: Tensor, dimensions: Sequence[int]) -> None:
    """Tells the compiler that some dimensions of a tensor have the same size in every call."""
    for dimension in dimensions:
        torch._dynamo.mark_static(tensor, dimension)


@cache
def _compiled(function: Callable[..., T]) -> Callable[..., T]:
    return torch.compile(function, dynamic=True)
