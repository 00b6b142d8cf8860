"""Ranks as threads, for objects that are gathered."""

from collections.abc import Callable
from threading import Barrier, get_ident
from typing import Any


def gathering(barrier: Barrier) -> Callable[[Any], list[Any]]:
    """Returns a stand-in for `collectives.gathered`; a rank that calls it more often than others breaks it."""
    posted: dict[int, Any] = {}

    def gathered(own: Any) -> list[Any]:
        posted[get_ident()] = own
        barrier.wait(10)
        everyone = list(posted.values())
        barrier.wait(10)
        return everyone

    return gathered
