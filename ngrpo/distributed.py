"""Objects of all ranks on every rank."""

from typing import TypeVar

from torch import distributed

T = TypeVar("T")


def gathered(own: T) -> list[T]:
    """Returns what each rank brought, by rank (a collective); alone, just the own object.

    Args:
        own: picklable and small: it travels as bytes.
    """
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return [own]
    everyone: list[T] = [own] * distributed.get_world_size()
    distributed.all_gather_object(everyone, own)
    return everyone
