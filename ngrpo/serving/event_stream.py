"""Answers that are sent while they are made: server-sent events, to clients that may hang up or read slowly."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
"""The last event, as OpenAI's clients expect it."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy is not to wait for the whole
]


def event(message: Mapping[str, Any]) -> bytes:
    """Returns a message as an event."""
    return b"data: " + json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class EventStream:
    """Sends events as they come.

    Args:
        first: the first event: what fails before it is answered with a status of its own.
        events: the others.
        failed: returns the event that tells an exception.
        withdraw: is called when the client does not get all, since it is gone or takes nothing.
        timeout_s: longest wait until a client has taken an event.
    """

    def __init__(
        self,
        first: bytes,
        events: AsyncIterator[bytes],
        failed: Callable[[Exception], bytes],
        withdraw: Callable[[], None],
        timeout_s: float,
    ) -> None:
        self._first = first
        self._events = events
        self._failed = failed
        self._withdraw = withdraw
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer."""
        sending = asyncio.ensure_future(self._send_all(send))
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())  # else it is logged
        gone = asyncio.ensure_future(_disconnected(receive))
        whole = False
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            whole = sending.done() and sending.result()
        finally:
            gone.cancel()
            sending.cancel()
            if not whole:
                await asyncio.to_thread(self._withdraw)
            await asyncio.wait({sending, gone})

    async def _send_all(self, send: Send) -> bool:
        """Returns whether the client has got all."""
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send_event(send, self._first)
            async for one in self._told():
                await self._send_event(send, one)
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("a client took nothing of its answer for %g s; it is hung up on", self._timeout_s)
            return False
        return True

    async def _told(self) -> AsyncIterator[bytes]:
        try:
            async for one in self._events:
                yield one
        except Exception as error:
            yield self._failed(error)

    async def _send_event(self, send: Send, content: bytes) -> None:
        await self._send(send, {"type": "http.response.body", "body": content, "more_body": True})

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        # Not wait_for: before Python 3.12 it loses the cancelling of one whose message has just been taken.
        async with asyncio.timeout(self._timeout_s):
            await send(message)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
