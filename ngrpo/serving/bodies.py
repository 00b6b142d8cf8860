"""The bodies of requests: read within limits of size and time."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from starlette.requests import ClientDisconnect, Request

from ngrpo.remote.connection import JSON
from ngrpo.serving.fields import Fields, read_object
from ngrpo.serving.refusals import Refusal, too_large

T = TypeVar("T")

_MIB = 1 << 20
_SMALL = 1 << 15
"""Bytes that are worked on in less time than it takes to change threads a few times."""

_GONE = HTTPStatus.REQUEST_TIMEOUT


async def read_octets(request: Request, most_mib: float, timeout_s: float) -> bytes:
    """Returns a body.

    Raises:
        Refusal: it is too large, or does not come.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _octets(request, most_mib)
    except TimeoutError as error:
        raise Refusal(_GONE, f"the body did not come within {timeout_s:g} s; send it faster.") from error
    except ClientDisconnect as error:
        raise Refusal(_GONE, "the client is gone.") from error


async def _octets(request: Request, most_mib: float) -> bytes:
    most = int(most_mib * _MIB)
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > most:
        raise too_large("the body", most_mib)
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            raise too_large("the body", most_mib)
    return bytes(content)


class Body(NamedTuple):
    """A JSON body, read.

    Attributes:
        fields: of it.
        size: bytes.
    """

    fields: Fields
    size: int


async def read_json(request: Request, most_mib: float, timeout_s: float) -> Body:
    """Returns the fields of a JSON body. Its type must be named: a page in a browser cannot send that unasked.

    Raises:
        Refusal: it is of another type, too large, or does not come.
        SettingError: it is no JSON object.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is not {JSON}; set its Content-Type.")
    octets = await read_octets(request, most_mib, timeout_s)
    return Body(await here_or_aside(len(octets), lambda: read_object(octets)), len(octets))


async def here_or_aside(size: int, work: Callable[[], T]) -> T:
    """Does what takes as long as a number of bytes is large: here, or in a thread where others would wait for it."""
    return work() if size <= _SMALL else await asyncio.to_thread(work)


async def unless_gone(request: Request, waited: Awaitable[T], withdraw: Callable[[], object]) -> T:
    """Waits for what an engine does, unless the client hangs up.

    Args:
        request: the client's.
        waited: what it waits for.
        withdraw: is called when it is gone.

    Raises:
        Refusal: the client is gone.
    """
    answer = asyncio.ensure_future(waited)
    answer.add_done_callback(_forget)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        await asyncio.to_thread(withdraw)
        raise Refusal(_GONE, "the client is gone.")
    finally:
        gone.cancel()
        answer.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _forget(answer: "asyncio.Future[Any]") -> None:
    """Looks at what nobody waits for, since an exception that nobody looks at is logged."""
    if not answer.cancelled():
        answer.exception()
