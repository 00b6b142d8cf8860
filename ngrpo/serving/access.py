"""The doorkeeper of a server: who may ask, and from where."""

import hmac
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ngrpo.serving.answers import error_answer
from ngrpo.serving.refusals import Refusal

OPEN = ("/health",)
"""Paths that anybody may ask, since they tell nothing."""

_LOCAL = {"localhost", "127.0.0.1", "[::1]"}


class Access:
    """Lets requests through that show the token.

    Without a token only this machine is listened to; then the name that a client called must be one of it, since a page
    in a browser could otherwise ask by a name of its own that leads here.

    Args:
        app: what is guarded.
        token: bearer token; None for none.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or lets it through."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await error_answer(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Refusal | None:
        if self._token is None:
            host = headers.get("host", "")
            if host.rpartition(":")[0] in _LOCAL or host in _LOCAL:
                return None
            return Refusal(HTTPStatus.FORBIDDEN, "this server is asked as localhost or 127.0.0.1 only.")
        given = headers.get("authorization", "").encode("latin-1", "replace")
        if hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return None
        return Refusal(
            HTTPStatus.UNAUTHORIZED, "the bearer token is missing or wrong; send Authorization: Bearer TOKEN."
        )
