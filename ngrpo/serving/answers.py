"""Answers of a server: JSON, and errors in the form of OpenAI's."""

import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ngrpo.errors import RunError, SettingError
from ngrpo.remote.connection import JSON
from ngrpo.serving.fields import FieldError
from ngrpo.serving.refusals import Refusal
from ngrpo.utils.optional_packages import installed

log = logging.getLogger(__name__)

_RETRY_AFTER_S = "1"
_SHOWN = 500
"""Characters of a sentence, which may quote what was sent."""


def json_writer() -> Callable[[Any], bytes]:
    """Returns what writes JSON: orjson, or the standard library in vLLM's own server, which may not have it."""
    if not installed("orjson"):
        return lambda message: json.dumps(message, separators=(",", ":")).encode()
    import orjson

    return orjson.dumps


_write = json_writer()


def rollout_answer(message: Mapping[str, Any]) -> Response:
    """Returns an answer with rollouts: hundreds of token ids and kilobytes of base64 each, and no float.

    orjson takes a tenth of the time, and writes null for a float that is no number, which JSONResponse refuses.
    """
    return Response(_write(message), media_type=JSON)


def error_answer(refusal: Refusal) -> Response:
    """Returns the answer to a request that is not served."""
    headers = {}
    if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = _RETRY_AFTER_S
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(_message(refusal), refusal.status, headers)


def refused(_: Request, error: Exception) -> Response:
    """Returns the answer to an error of a handler."""
    return error_answer(_refusal(error))


def error_message(error: Exception) -> dict[str, Any]:
    """Returns what an answer says of an error that comes after its beginning."""
    return _message(_refusal(error))


def _message(refusal: Refusal) -> dict[str, Any]:
    kind = "server_error" if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    said = "".join(c if c.isprintable() else " " for c in str(refusal))[:_SHOWN]
    return {"error": {"message": said, "type": kind, "param": refusal.param, "code": refusal.code}}


def _refusal(error: Exception) -> Refusal:
    """Returns the refusal that an error of a handler comes to."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, SettingError):
        return Refusal(HTTPStatus.BAD_REQUEST, str(error), param=error.name if isinstance(error, FieldError) else None)
    if isinstance(error, RunError):
        return Refusal(HTTPStatus.CONFLICT, str(error))
    log.error("a request failed", exc_info=error)
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"the server failed ({type(error).__name__}); its log says where.")


def not_routed(_: Request, error: Any) -> Response:
    """Returns the answer to a request for a path or method that there is not."""
    return error_answer(Refusal(HTTPStatus(error.status_code), f"{str(error.detail).lower()}."))
