"""Servers of rollouts in threads of the tests' process, with the demo model."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ngrpo.config.check import checked
from ngrpo.config.schema import ServeConfig
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.serve import bound_socket, served, web_server
from ngrpo.serving.settings import ServerSettings

QUESTION = "Tom has 3 apples and buys 4 more. How many?"


@dataclass
class RunningServer:
    """A server that answers.

    Attributes:
        port: of 127.0.0.1.
        app: its application, or what a test puts before it.
    """

    port: int
    app: ASGIApp

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Returns status, body (as JSON where it is that) and headers of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if content is not None else {}
        try:
            connection.request(method, path, content, given | dict(headers or {}))
            answer = connection.getresponse()
            said = answer.read()
            try:
                return answer.status, json.loads(said), answer.headers
            except ValueError:
                return answer.status, said, answer.headers
        finally:
            connection.close()

    def post(self, path: str, body: Any) -> Any:
        """Returns a good answer."""
        status, said, _ = self.ask("POST", path, body)
        assert status == 200, said
        return said

    def refusal(self, path: str, body: Any, status: int = 400) -> str:
        """Returns the sentence of a refusal."""
        found, said, _ = self.ask("POST", path, body)
        assert found == status, said
        assert set(said["error"]) == {"message", "type", "param", "code"}
        return str(said["error"]["message"])


@contextmanager
def running_server(*words: str, model: str = "demo") -> Iterator[RunningServer]:
    """Serves on a free port until the block ends."""
    composition = composed("serve", [f"model.path={model}", "accelerator=cpu", "server.port=0", *words])
    config = checked(composition.config, ServeConfig)
    settings = ServerSettings(**config.server)
    with ExitStack() as stack:
        listening = stack.enter_context(bound_socket(settings))
        app = stack.enter_context(served(config, composition.choices["exploration"], settings))
        running = RunningServer(listening.getsockname()[1], app)

        async def current(scope: Any, receive: Any, send: Any) -> None:
            await running.app(scope, receive, send)

        web = web_server(current)
        thread = threading.Thread(target=_run, args=(web, listening), daemon=True)
        thread.start()
        while not web.started:
            time.sleep(0.01)
        try:
            yield running
        finally:
            web.should_exit = True
            thread.join(timeout=30)


def _run(web: uvicorn.Server, listening: Any) -> None:
    web.run([listening])
