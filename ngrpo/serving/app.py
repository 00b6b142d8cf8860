"""The application of a server: its routes behind the token, with health and metrics."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ngrpo.errors import RunError, SettingError
from ngrpo.serving.access import Access
from ngrpo.serving.answers import not_routed, refused
from ngrpo.serving.handling import Handling
from ngrpo.serving.metrics import Metrics
from ngrpo.serving.native_routes import native_routes
from ngrpo.serving.openai_routes import openai_routes
from ngrpo.serving.refusals import Refusal


def application(handling: Handling) -> ASGIApp:
    """Returns the application that a web server runs."""

    async def health(_: Request) -> Response:
        """Says whether rollouts can be made."""
        whole = handling.model.failure is None
        status = HTTPStatus.OK if whole else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"status": "ok" if whole else "failed"}, status)

    async def metrics(_: Request) -> Response:
        """Tells the metrics."""
        return Response(handling.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [
        Route("/health", health, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *native_routes(handling),
        *openai_routes(handling),
    ]
    paths = {route.path for route in routes}
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: not_routed,
            Refusal: refused,
            SettingError: refused,
            RunError: refused,
            Exception: refused,
        },
    )
    return _Counted(Access(app, handling.settings.token), handling.metrics, paths)


class _Counted:
    """Counts the answers of an application.

    Args:
        app: whose answers are counted.
        metrics: counts them.
        paths: of the interface; answers to others are counted together.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: set[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, and counts its answer."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(self._path(scope), message["status"])
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)

    def _path(self, scope: Scope) -> str:
        path = str(scope.get("path"))
        if path.startswith("/ngrpo/tensors/"):
            return "/ngrpo/tensors/{name}"
        return path if path in self._paths else "other"
