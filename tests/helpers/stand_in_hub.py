"""A stand-in for the Hugging Face Hub: the endpoints that a push uses, and what was pushed."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_known"


@dataclass
class StandInHub:
    """What was asked of it.

    Attributes:
        address: of the server.
        repositories: whether each is private, by name.
        files: of the repositories, by name and path.
        broken: answers commits with an error.
    """

    address: str = ""
    repositories: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    broken: bool = False
    unknown: list[str] = field(default_factory=list)


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    """Serves at a free port."""
    hub = StandInHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: StandInHub

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_GET(self) -> None:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials"})
        if self.path == "/api/whoami-v2":
            return self._answer(200, {"name": "user", "type": "user"})
        return self._unknown()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("authorization") != f"Bearer {TOKEN}" and self.path != "/api/validate-yaml":
            return self._answer(401, {"error": "Invalid credentials"})
        name = "/".join(self.path.split("/")[3:5])
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        if self.path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            return self._answer(
                200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]}
            )
        if "/commit/" in self.path:
            return self._commit(name, body)
        return self._unknown()

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or 'user'}/{asked['name']}"
        self.hub.repositories.setdefault(name, asked.get("private") or asked.get("visibility") == "private")
        self._answer(200, {"url": f"{self.hub.address}/{name}", "name": name, "id": name})

    def _commit(self, name: str, body: bytes) -> None:
        if self.hub.broken:
            return self._answer(400, {"error": "the storage is full"})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.hub.files.setdefault(name, {})[line["value"]["path"]] = content
        url = f"{self.hub.address}/{name}/commit/{'0' * 40}"
        return self._answer(200, {"success": True, "commitOid": "0" * 40, "commitUrl": url})

    def _unknown(self) -> None:
        self.hub.unknown.append(self.path)
        self._answer(404, {"error": f"nothing at {self.path}"})

    def _answer(self, status: int, made: dict[str, Any]) -> None:
        content = json.dumps(made).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""
