"""Many clients of a rollout server in one process, on nothing but the standard library.

    python scripts/serving_clients.py http://127.0.0.1:8000 REQUESTS.json

``REQUESTS.json`` has a list of lists: bodies for ``/ngrpo/generate``, those of each client, which sends one after the
other. All clients begin at once. Printed as JSON: seconds from the first request to the end of the last answer; in
these, when the first request of every client was sent and when the first answer came; when they began, by
``time.perf_counter``; seconds of the processor; the tokens of all answers, and how many answers there were by status.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
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


class Asked(NamedTuple):
    """What clients were answered, and when.

    Attributes:
        answers: of all.
        times: in seconds, by the names under which they are printed.
    """

    answers: list[Answer]
    times: Mapping[str, float]


async def ask_all(url: str, of_clients: Sequence[Sequence[bytes]]) -> Asked:
    """Has clients ask for rollouts, each for one after the other."""
    clients = [Client(url) for _ in of_clients]
    sent, answered = list[float](), list[float]()

    async def ask(client: Client, bodies: Sequence[bytes]) -> list[Answer]:
        answers = list[Answer]()
        for body in bodies:
            await client.send("/ngrpo/generate", body)
            sent.append(time.perf_counter())
            answers.append(await client.answer())
            answered.append(time.perf_counter())
        return answers

    start, used = time.perf_counter(), time.process_time()
    found = await asyncio.gather(*map(ask, clients, of_clients))
    seconds, used = time.perf_counter() - start, time.process_time() - used
    for client in clients:
        client.close()
    times = {
        "began": start,
        "seconds": seconds,
        "sent_s": sorted(sent)[len(clients) - 1] - start,
        "first_answer_s": min(answered) - start,
        "processor_s": used,
    }
    return Asked([answer for answers in found for answer in answers], times)


def figures(asked: Asked) -> Mapping[str, Any]:
    """Returns what is printed."""
    good = [json.loads(content) for status, content in asked.answers if status == 200]
    tokens = sum(len(one["response_ids"]) for made in good for one in made["rollouts"])
    return {**asked.times, "tokens": tokens, "answers": dict(Counter(str(status) for status, _ in asked.answers))}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[2]).read_text())
    encoded = [[json.dumps(body).encode() for body in bodies] for bodies in given]
    print(json.dumps(figures(asyncio.run(ask_all(sys.argv[1], encoded)))))
