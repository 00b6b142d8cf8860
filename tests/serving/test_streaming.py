"""Streamed answers come in parts that are together the whole answer; who hangs up in the middle takes it back."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

import pytest
from running_server import QUESTION, RunningServer, running_server

from ngrpo.modeling.loading import ModelSource
from ngrpo.remote.connection import ServerConnection
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import cut
from ngrpo.serving.following import Following, News
from ngrpo.serving.generation import Generation

MESSAGES = [{"role": "user", "content": QUESTION}]
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
NEIGHBOR = {"exploration": {"name": "neighbor", "rate": 0.4}, "key": 7}
LONG = {"prompt": [5, 6, 7], "max_tokens": 64, "key": 3}


def events(server: RunningServer, path: str, body: Any) -> list[dict[str, Any]]:
    """Returns the events of a streamed answer."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body | {"stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        *found, last = answer.read().decode().split("\n\n")[:-1]
    finally:
        connection.close()
    assert last == "data: [DONE]"
    return [json.loads(one.removeprefix("data: ")) for one in found]


def together(found: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Puts the chunks of each choice together, as clients do."""
    choices: dict[int, dict[str, Any]] = {}
    for one in found:
        for part in one["choices"]:
            choice = choices.setdefault(part["index"], {"text": "", "parts": 0})
            assert choice.get("finish_reason") is None
            choice["text"] += part["text"] if "text" in part else part["delta"].get("content", "")
            choice["parts"] += 1
            choice |= {name: part[name] for name in ("finish_reason", "mixed_positions") if name in part}
            choice |= {name: part[name] for name in ("logprobs", "token_ids") if part.get(name) is not None}
    return choices


@pytest.mark.parametrize(("path", "asked"), [(CHAT, {"messages": MESSAGES}), (COMPLETION, {"prompt": "Tom has"})])
@pytest.mark.parametrize("stops", [[], ["3", " a", "."]])
def test_the_parts_are_the_whole(server: RunningServer, path: str, asked: dict[str, Any], stops: list[str]) -> None:
    body = {**asked, **NEIGHBOR, "n": 3, "stop": stops, "logprobs": True, "return_token_ids": True}
    whole = server.post(path, body)
    found = events(server, path, body | {"stream_options": {"include_usage": True}})
    *parts, usage = found
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert {one["object"] for one in found} == {whole["object"] + (".chunk" if path == CHAT else "")}
    assert len({one["id"] for one in found}) == 1
    assert {one["system_fingerprint"] for one in found} == {whole["system_fingerprint"]}
    choices = together(parts)
    for place, expected in enumerate(whole["choices"]):
        own = choices[place]
        assert own["text"] == (expected["text"] if path == COMPLETION else expected["message"]["content"])
        for name in ("finish_reason", "mixed_positions", "logprobs", "token_ids"):
            assert own[name] == expected[name], name
        assert own["parts"] >= 2
    if path == CHAT:
        assert parts[0]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_text_ends_a_response_before_it(server: RunningServer, stream: bool) -> None:
    body = {"prompt": "Tom has 3 apples", "max_tokens": 40, "key": 5, "return_token_ids": True}
    (whole,) = server.post(COMPLETION, body)["choices"]
    stop = whole["text"][6:9]
    asked = body | {"stop": stop}
    choice = together(events(server, COMPLETION, asked))[0] if stream else server.post(COMPLETION, asked)["choices"][0]
    at = whole["text"].find(stop)
    assert (choice["text"], choice["finish_reason"]) == (whole["text"][:at], "stop")
    assert 0 < len(choice["token_ids"]) < len(whole["token_ids"])
    assert choice["token_ids"] == whole["token_ids"][: len(choice["token_ids"])]


def test_text_comes_while_the_rest_is_made(server: RunningServer) -> None:
    """In as many parts as a look of the engine at each token gives, not in one at the end."""
    found = events(server, COMPLETION, LONG | {"exploration": {"name": "token"}})
    assert len(found) > 10


@pytest.mark.parametrize(
    ("body", "status"),
    [({"prompt": [99999]}, 400), ({"prompt": "x", "weights": {"oldest_step": 9}}, 409), ({"prompt": "x", "n": 0}, 400)],
)
def test_what_cannot_be_served_is_refused_before_the_stream(server: RunningServer, body: Any, status: int) -> None:
    server.refusal(COMPLETION, body | {"stream": True}, status)


@pytest.fixture
def own() -> Iterator[RunningServer]:
    with running_server("server.send_timeout_s=0.5", "server.max_requests=64") as running:
        yield running


@pytest.mark.parametrize("stop", [None, "a"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_client_is_told_the_weights_that_made_its_response(
    own: RunningServer, stream: bool, stop: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served by the time that it takes the rest of its answer."""
    asked, changed, look = threading.Event(), threading.Event(), Following.next

    async def late(self: Following, work: Generation) -> list[News]:
        asked.set()
        await asyncio.to_thread(changed.wait, 60)
        return await look(self, work)

    monkeypatch.setattr(Following, "next", late)
    before = own.ask("GET", "/ngrpo/weights")[1]["version"]
    body = LONG | {"n": 2, "stop": stop, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(events if stream else own.post, *([own] if stream else []), COMPLETION, body)
        if stream or stop:
            assert asked.wait(30)
            weights = {name: 0.99 * tensor.detach() for name, tensor in ModelSource().load().named_parameters()}
            ServerGroup([ServerConnection(own.url)]).send_weights(cut(weights.items(), 1 << 20), 1)
            assert own.ask("GET", "/ngrpo/weights")[1]["version"] != before
            changed.set()
        found = answer.result(60)
    assert {one["system_fingerprint"] for one in (found if stream else [found])} == {before}


def hang_up_after(server: RunningServer, body: Any, parts: int) -> None:
    """Asks for a stream, reads some of it and hangs up."""
    content = json.dumps(body | {"stream": True}).encode()
    head = f"POST {COMPLETION} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        read = b""
        while read.count(b"data: ") < parts:
            read += client.recv(4096)


def until_nothing_waits(server: RunningServer) -> None:
    deadline = time.monotonic() + 30
    while b"ngrpo_waiting_rollouts 0.0" not in server.ask("GET", "/metrics")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_hangs_up_in_the_middle_takes_the_rest_back(own: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    """Of 64 rollouts each, most are never made: the figures count what was. No fault is reported."""
    for _ in range(5):
        hang_up_after(own, LONG | {"n": 64}, parts=3)
    until_nothing_waits(own)
    assert b"ngrpo_generated_tokens_total 0.0" in own.ask("GET", "/metrics")[1]
    assert together(events(own, COMPLETION, LONG))[0]["text"] == own.post(COMPLETION, LONG)["choices"][0]["text"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_streams_of_many_clients_are_each_ones_own(server: RunningServer) -> None:
    expected = {key: server.post(COMPLETION, LONG | {"key": key})["choices"][0]["text"] for key in range(8)}

    def ask(number: int) -> bool:
        body = LONG | {"key": number % 8}
        if number % 5 == 4:
            hang_up_after(server, body, parts=2)
            return True
        return bool(together(events(server, COMPLETION, body))[0]["text"] == expected[number % 8])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))
    until_nothing_waits(server)


def test_an_engine_that_fails_in_the_middle_ends_the_stream_with_an_error(
    own: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ngrpo.rollout.torch_engine.stream import TorchStream

    wait, turns = TorchStream.wait, []

    def failing(self: TorchStream) -> list[int]:
        turns.append(1)
        if len(turns) == 6:
            raise ValueError("a broken forward")
        return wait(self)

    monkeypatch.setattr(TorchStream, "wait", failing)
    connection = HTTPConnection("127.0.0.1", own.port, timeout=60)
    body = json.dumps(LONG | {"stream": True})
    connection.request("POST", COMPLETION, body, {"Content-Type": "application/json"})
    *_, last = connection.getresponse().read().decode().split("\n\n")[:-1]
    connection.close()
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["message"] == "the rollout engine failed (ValueError: a broken forward); the server's log says where."
    assert error["type"] == "server_error"
    assert own.post(COMPLETION, LONG)["choices"]


def test_who_reads_nothing_is_hung_up_on_and_holds_nobody_up(own: RunningServer) -> None:
    """The answers of many requests on one connection fill its buffers; the others go on meanwhile."""
    content = json.dumps(LONG | {"n": 64, "logprobs": True, "return_token_ids": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = head + f"Content-Length: {len(content)}\r\n\r\n".encode() + content
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", own.port))
        sending = threading.Thread(target=_send_all, args=(client, request * 40), daemon=True)
        sending.start()
        start = time.monotonic()
        own.post(COMPLETION, LONG)
        assert time.monotonic() - start < 20
    sending.join(20)
    until_nothing_waits(own)


def _send_all(client: socket.socket, content: bytes) -> None:
    with suppress(OSError):  # it was hung up on
        client.sendall(content)


def test_openais_own_client_reads_streams_and_errors(server: RunningServer) -> None:
    openai = pytest.importorskip("openai", reason="openai is not installed")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    asked = {"model": "demo", "messages": MESSAGES, "extra_body": NEIGHBOR, "stop": ["."], "logprobs": True}
    whole = client.chat.completions.create(**asked).choices[0]
    parts = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(one.choices[0].delta.content or "" for one in parts if one.choices)
    assert text == whole.message.content
    assert parts[-1].usage.completion_tokens == len(whole.logprobs.content)
    with pytest.raises(openai.BadRequestError, match=r"n=0 \(int\) cannot be used") as refused:
        client.chat.completions.create(**asked, n=0)
    assert refused.value.param == "n"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(**asked | {"model": "other"})
    assert missing.value.code == "model_not_found"
