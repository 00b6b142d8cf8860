"""Awaitables are waited for with and without a running event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ngrpo.utils.awaiting import wait_for


async def three() -> int:
    await asyncio.sleep(0)
    return 3


async def broken() -> int:
    raise KeyError("of the author")


def in_a_cell(make: Callable[[], Any]) -> Any:
    """Waits inside a running loop, as a notebook's cell does."""

    async def cell() -> Any:
        return wait_for(make())

    return asyncio.run(cell())


def test_without_a_loop() -> None:
    assert wait_for(three()) == 3


def test_inside_a_running_loop_as_in_a_notebook() -> None:
    assert in_a_cell(three) == 3


def test_exceptions_pass_as_they_are() -> None:
    for call in (lambda: wait_for(broken()), lambda: in_a_cell(broken)):
        with pytest.raises(KeyError, match="of the author"):
            call()
