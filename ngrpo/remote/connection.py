"""The connection to one rollout server: requests, answers, and the errors that they come to."""

import json
import os
import socket
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from ngrpo.errors import SettingError

TOKEN_VARIABLE = "NGRPO_SERVER_TOKEN"
"""The environment variable that holds the bearer token, on both sides."""

JSON = "application/json"
OCTETS = "application/octet-stream"

_RETRIED = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""Answers after which the same request may be asked again, there or elsewhere."""


class ServerUnavailable(ConnectionError):
    """A server did not answer, or cannot now; the message says which and why, in a sentence."""


class OtherWeights(ServerUnavailable):
    """A server has other weights than those that were asked for."""


class OlderWeights(SettingError):
    """A server has weights of the same number as those that were sent, or of a larger one."""


class MissingTensors(ServerUnavailable):
    """A server does not have tensors that a request refers to: it was started again, or has dropped them."""


class ServerConnection:
    """Asks one server, in a connection for each request, from any number of threads.

    Args:
        url: such as ``http://127.0.0.1:8000``.
        token: bearer token; None for a server without one.
        timeout_s: longest wait for an answer, that for the rollouts included.

    Raises:
        SettingError: the URL is none.
    """

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 600.0) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query or parts.username:
            raise SettingError(f"url={url} is no address of a server; give one such as http://127.0.0.1:8000.")
        self.url = url.rstrip("/")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address = (parts.hostname, port)
        self._path = parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout_s

    def get(self, path: str) -> Any:
        """Returns the answer to a question, a JSON object."""
        return self._json(self._ask("GET", path, None, {}))

    def post(self, path: str, message: Mapping[str, Any]) -> Any:
        """Sends a JSON object, and returns the answer, one too."""
        return self._json(self._ask("POST", path, json.dumps(message).encode(), {"Content-Type": JSON}))

    def octets(self, path: str) -> bytes:
        """Returns the answer to a question as it is."""
        return self._ask("GET", path, None, {})

    def put(self, path: str, octets: bytes) -> None:
        """Sends bytes."""
        self._ask("PUT", path, octets, {"Content-Type": OCTETS})

    def has(self, path: str) -> bool:
        """Says whether there is something at a path."""
        try:
            self._ask("HEAD", path, None, {})
        except MissingTensors:
            return False
        return True

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        """Returns the body of a good answer.

        Raises:
            ServerUnavailable: there is none, or not now.
            SettingError: the server refuses the request.
        """
        if self._token is not None:
            headers = headers | {"Authorization": f"Bearer {self._token}"}
        connection = self._kind(*self._address, timeout=self._timeout)
        try:
            connection.request(method, self._path + path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            reason = "no answer in time" if isinstance(error, socket.timeout) else str(error) or type(error).__name__
            raise ServerUnavailable(f"{self.url} does not answer ({reason})") from error
        finally:
            connection.close()
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:  # redirections too, which are not followed
            raise self._refused(answer.status, content)
        return content

    def _refused(self, status: int, content: bytes) -> Exception:
        """Returns the error that an answer stands for; what the server says is shown as it is."""
        try:
            said = json.loads(content)["error"]
            code, sentence = said.get("code"), str(said["message"])
        except (ValueError, TypeError, KeyError):
            code, sentence = None, f"status {status}"
        if status == HTTPStatus.NOT_FOUND and not content:
            return MissingTensors(f"{self.url} has no such tensors")
        if code == "missing_tensors":
            return MissingTensors(f"{self.url}: {sentence}")
        if code == "older_weights":
            return OlderWeights(f"{self.url} refuses: {sentence}")
        if code == "other_weights":
            return OtherWeights(f"{self.url}: {sentence}")
        if status in _RETRIED:
            return ServerUnavailable(f"{self.url} cannot answer ({sentence.rstrip('.')})")
        return SettingError(f"{self.url} refuses: {sentence}")

    def _json(self, content: bytes) -> Any:
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):  # of a proxy, or of another program at that address
            raise ServerUnavailable(f"{self.url} answers with something else than a JSON object")
        return answer


def token_from(variable: str) -> str | None:
    """Returns the token of an environment variable; None where it is unset or empty."""
    return os.environ.get(variable) or None
