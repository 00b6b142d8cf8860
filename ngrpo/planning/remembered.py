"""Results that are kept for arguments which say all about themselves, but cannot be hashed."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def by_repr(function: Callable[[A], T]) -> Callable[[A], T]:
    """Keeps what a function returns, by the text of its argument: a model's configuration writes itself out whole."""
    known: dict[str, T] = {}

    @wraps(function)
    def remembering(argument: A) -> T:
        key = repr(argument)
        if key not in known:
            known[key] = function(argument)
        return known[key]

    return remembering
