"""Functions that run compiled on a GPU: what they read and write there goes through memory once."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def compiled_for(tensor: Tensor, function: Callable[..., T]) -> Callable[..., T]:
    """Returns the function, compiled if ``tensor`` is on a GPU."""
    return _compiled(function) if tensor.is_cuda else function


@cache
def _compiled(function: Callable[..., T]) -> Callable[..., T]:
    return torch.compile(function, dynamic=True)
