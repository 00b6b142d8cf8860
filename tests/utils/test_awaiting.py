"""Awaitables are waited for with and without a running event loop."""

import asyncio

import pytest

from ngrpo.utils.awaiting import wait_for


async def three() -> int:
    await asyncio.sleep(0)
    return 3


async def broken() -> int:
    raise KeyError("of the author")


def test_without_a_loop() -> None:
    assert wait_for(three()) == 3


def test_inside_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> int:
        return wait_for(three())

    assert asyncio.run(cell()) == 3


def test_exceptions_pass_as_they_are() -> None:
    async def cell() -> int:
        return wait_for(broken())

    for call in (lambda: wait_for(broken()), lambda: asyncio.run(cell())):
        with pytest.raises(KeyError, match="of the author"):
            call()
