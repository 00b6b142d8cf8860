"""Consecutive items, as many at a time as a size allows."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def grouped(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yields all items in their order, as many at a time as have sizes that add up to ``most``.

    Args:
        items: read as far as the next group needs.
        most: what no group of several items exceeds; a larger item comes alone.
        size: of an item.
    """
    group: list[Item] = []
    total = 0
    for item in items:
        added = size(item)
        if group and total + added > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += added
    if group:
        yield group
