"""The result of an awaitable, waited for where an event loop may already run, as in a notebook."""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def wait_for(awaitable: Awaitable[T]) -> T:
    """Runs an awaitable to its end in a loop of its own; in a thread of its own if this one's loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_result(awaitable))
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _result(awaitable)).result()


async def _result(awaitable: Awaitable[T]) -> T:
    return await awaitable
