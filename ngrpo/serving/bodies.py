"""The bodies of requests: read within limits of size and time."""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Future
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from ngrpo.remote.connection import JSON
from ngrpo.serving.fields import Fields, read_object
from ngrpo.serving.refusals import Refusal, too_large

T = TypeVar("T")

_MIB = 1 << 20
_GONE = HTTPStatus.REQUEST_TIMEOUT


async def read_octets(request: Request, most_mib: float, timeout_s: float) -> bytes:
    """Returns a body.

    Raises:
        Refusal: it is too large, or does not come.
    """
    try:
        return await asyncio.wait_for(_octets(request, most_mib), timeout_s)
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


async def read_json(request: Request, most_mib: float, timeout_s: float) -> Fields:
    """Returns the fields of a JSON body. Its type must be named: a page in a browser cannot send that unasked.

    Raises:
        Refusal: it is of another type, too large, or does not come.
        SettingError: it is no JSON object.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is not {JSON}; set its Content-Type.")
    return read_object(await read_octets(request, most_mib, timeout_s))


async def unless_gone(request: Request, waited: "Future[T]") -> T:
    """Waits for what an engine does; a client that hangs up withdraws what has not begun.

    Raises:
        Refusal: the client is gone.
    """
    result: Awaitable[T] = asyncio.wrap_future(waited)
    answer = asyncio.ensure_future(result)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        waited.cancel()
        raise Refusal(_GONE, "the client is gone.")
    finally:
        gone.cancel()
        answer.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
