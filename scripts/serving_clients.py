"""Many clients of a rollout server in one process, on nothing but the standard library.

    python scripts/serving_clients.py http://127.0.0.1:8000 REQUESTS.json

``REQUESTS.json`` has a list of lists: bodies for ``/ngrpo/generate``, those of each client, which sends one after the
other. All clients begin at once. Printed as JSON: seconds from the first request to the end of the last answer, the
tokens of all answers, and how many answers there were by status.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Answer = tuple[int, bytes]
"""Status and body."""


class Client:
    """One connection to a server, which is opened with the first request and kept.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port or 80
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, path: str, body: bytes, method: str = "POST") -> None:
        """Sends a request."""
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(self._host, self._port)
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def answer(self) -> Answer:
        """Waits for the whole answer to the request that was sent."""
        assert self.reader is not None
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        if "content-length" in headers:
            content = await self.reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            content = await self._chunks()
        else:
            content = b""
        if headers.get("connection") == "close":
            self.close()
        return status, content

    async def ask(self, path: str, body: bytes, method: str = "POST") -> Answer:
        """Sends a request and waits for its answer."""
        await self.send(path, body, method)
        return await self.answer()

    def close(self) -> None:
        """Hangs up."""
        if self.writer is not None:
            self.writer.close()
            self.reader = self.writer = None

    async def _chunks(self) -> bytes:
        assert self.reader is not None
        content = b""
        while size := int(await self.reader.readline(), 16):
            content += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readline()
        return content


async def ask_all(url: str, of_clients: Sequence[Sequence[bytes]]) -> tuple[float, list[Answer]]:
    """Has clients ask for rollouts, each for one after the other; returns seconds and answers."""
    clients = [Client(url) for _ in of_clients]

    async def ask(client: Client, bodies: Sequence[bytes]) -> list[Answer]:
        return [await client.ask("/ngrpo/generate", body) for body in bodies]

    start = time.perf_counter()
    found = await asyncio.gather(*map(ask, clients, of_clients))
    seconds = time.perf_counter() - start
    for client in clients:
        client.close()
    return seconds, [answer for answers in found for answer in answers]


def figures(seconds: float, answers: Sequence[Answer]) -> Mapping[str, Any]:
    """Returns what is printed."""
    good = [json.loads(content) for status, content in answers if status == 200]
    tokens = sum(len(one["response_ids"]) for made in good for one in made["rollouts"])
    return {"seconds": seconds, "tokens": tokens, "answers": dict(Counter(str(status) for status, _ in answers))}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[2]).read_text())
    encoded = [[json.dumps(body).encode() for body in bodies] for bodies in given]
    print(json.dumps(figures(*asyncio.run(ask_all(sys.argv[1], encoded)))))
