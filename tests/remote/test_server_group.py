"""Work goes to the next server when one fails, with the same keys; what all refuse is said in a sentence."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.remote import server_group
from ngrpo.remote.connection import MissingTensors, OtherWeights, ServerConnection, ServerUnavailable
from ngrpo.remote.explorer import RemoteExplorer
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import TensorPart, cut, version_of


class StandIn:
    """A server that answers with the keys it was asked for, after as many failures as it is told to have.

    Attributes:
        fails: statuses of its next answers; 0 hangs up.
        says: its next answers to what it is sent, instead of good ones.
        asked: keys, a list a request.
        held: names of parts.
        weights: those it took.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.fails: list[tuple[int, str | None]] = []
        self.says: list[bytes] = []
        self.asked: list[list[int]] = []
        self.held: set[str] = set()
        self.weights: list[list[str]] = []
        self.puts = 0

    def connection(self, timeout_s: float = 10.0) -> ServerConnection:
        return ServerConnection(self.url, timeout_s=timeout_s)


def handler_of(holder: list[StandIn]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: Any = None) -> None:
            content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_HEAD(self) -> None:  # noqa: N802
            self.answer(200 if self.path.rpartition("/")[2] in holder[0].held else 404)

        def do_PUT(self) -> None:  # noqa: N802
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.failed():
                return
            holder[0].puts += 1
            holder[0].held.add(self.path.rpartition("/")[2])
            self.answer(204)

        def failed(self) -> bool:
            if not holder[0].fails:
                return False
            status, code = holder[0].fails.pop(0)
            if status:
                self.answer(status, {"error": {"message": f"failed with {status}.", "code": code}})
            else:
                self.connection.close()
            return True

        def do_POST(self) -> None:  # noqa: N802
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "requests" in body:
                holder[0].asked.append([one["key"] for one in body["requests"]])
            if self.failed():
                return
            if holder[0].says:
                self.answer(200, holder[0].says.pop(0))
            elif "requests" in body:
                made = [{"key": one["key"]} for one in body["requests"]]
                self.answer(200, {"rollouts": made, "weights": {"version": holder[0].url, "step": 0}})
            else:
                holder[0].weights.append(body["tensors"])
                self.answer(200, {})

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Handler


@contextmanager
def stand_in() -> Iterator[StandIn]:
    holder: list[StandIn] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(holder))
    holder.append(StandIn(f"http://127.0.0.1:{server.server_address[1]}"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield holder[0]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def two() -> Iterator[tuple[StandIn, StandIn]]:
    with stand_in() as one, stand_in() as other:
        yield one, other


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_group, "_FIRST_PAUSE_S", 0.01)


REQUESTS = [{"key": number} for number in range(7)]
KEYS = list(range(7))


def keys(made: list[dict[str, Any]]) -> list[int]:
    return [one["key"] for one in made]


def test_servers_share_the_work_in_order(two: tuple[StandIn, StandIn]) -> None:
    made = ServerGroup([one.connection() for one in two]).generate({}, REQUESTS)
    assert keys(made) == KEYS
    assert two[0].asked == [[0, 1, 2]]
    assert two[1].asked == [[3, 4, 5, 6]]
    assert [one["weights"]["version"] for one in made] == [two[0].url] * 3 + [two[1].url] * 4


@pytest.mark.parametrize("failure", [(0, None), (500, None), (503, "busy"), (409, "other_weights"), (408, None)])
def test_a_share_goes_elsewhere_with_the_same_keys(two: tuple[StandIn, StandIn], failure: Any) -> None:
    two[1].fails = [failure]
    assert keys(ServerGroup([one.connection() for one in two]).generate({}, REQUESTS)) == KEYS
    assert sorted(two[0].asked) == [[0, 1, 2], [3, 4, 5, 6]]
    assert two[1].asked == [[3, 4, 5, 6]]


def test_a_single_server_is_asked_again(two: tuple[StandIn, StandIn]) -> None:
    two[0].fails = [(0, None), (503, "busy"), (502, None)]
    assert keys(ServerGroup([two[0].connection()], retries=3).generate({}, REQUESTS)) == KEYS
    assert two[0].asked == [KEYS] * 4


def test_one_that_is_not_there_is_done_without(two: tuple[StandIn, StandIn]) -> None:
    nobody = ServerConnection("http://127.0.0.1:9")
    assert keys(ServerGroup([nobody, two[0].connection()]).generate({}, REQUESTS)) == KEYS
    with pytest.raises(ServerUnavailable, match="http://127.0.0.1:9 does not answer"):
        ServerGroup([nobody], retries=1).generate({}, REQUESTS)


def test_a_refusal_is_not_asked_again(two: tuple[StandIn, StandIn]) -> None:
    two[0].fails = [(400, None)]
    with pytest.raises(SettingError, match="refuses: failed with 400"):
        ServerGroup([one.connection() for one in two]).generate({}, REQUESTS[:1])
    assert len(two[0].asked) + len(two[1].asked) == 1


@pytest.mark.parametrize(("code", "error"), [("other_weights", OtherWeights), ("missing_tensors", MissingTensors)])
def test_what_no_server_has_is_said_at_once(two: tuple[StandIn, StandIn], code: str, error: type[Exception]) -> None:
    two[0].fails, two[1].fails = [(409, code)] * 9, [(409, code)] * 9
    with pytest.raises(error):
        ServerGroup([one.connection() for one in two], retries=8).generate({}, REQUESTS[:1])
    assert len(two[0].asked) + len(two[1].asked) == 2


def test_a_server_that_answers_too_late_is_done_without(two: tuple[StandIn, StandIn]) -> None:
    with socket_that_says_nothing() as silent:
        group = ServerGroup([ServerConnection(silent, timeout_s=0.2), two[0].connection()])
        assert keys(group.generate({}, REQUESTS)) == KEYS


GARBAGE = {
    "no JSON": b"<html>busy</html>",
    "a list": b"[]",
    "nothing": b"null",
    "deep": b"[" * 99999,
    "an empty object": b"{}",
    "no weights": b'{"rollouts": [{"key": 0}]}',
    "rollouts that are none": b'{"rollouts": [1], "weights": {}}',
    "none": b'{"rollouts": [], "weights": {}}',
    "another's": b'{"rollouts": [{"key": 5}], "weights": {}}',
    "too many": b'{"rollouts": [{"key": 0}, {"key": 0}], "weights": {}}',
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_answer_is_asked_elsewhere(two: tuple[StandIn, StandIn], said: bytes) -> None:
    two[0].says = [said] * 3
    group = ServerGroup([one.connection() for one in two])
    assert group.generate({}, REQUESTS[:1]) == [{"key": 0, "weights": {"version": two[1].url, "step": 0}}]
    with pytest.raises(ServerUnavailable, match=f"{two[0].url} answers with "):
        ServerGroup([two[0].connection()], retries=1).generate({}, REQUESTS[:1])


def test_a_rollout_that_cannot_be_read_is_said_in_a_sentence(two: tuple[StandIn, StandIn]) -> None:
    key = request_key(0, 0, 0)
    for rest in ({}, {"prompt_ids": 1}, {"prompt_ids": [1], "response_ids": "a"}):
        two[0].says = [json.dumps({"rollouts": [{"key": key, **rest}], "weights": {}}).encode()]
        with pytest.raises(SettingError, match="a server has sent a rollout that cannot be read"):
            RemoteExplorer(two[0].url).rollout("a question")


def test_a_redirection_is_no_answer(two: tuple[StandIn, StandIn]) -> None:
    part = TensorPart.of(TENSORS)
    two[0].fails = [(302, None)]
    with pytest.raises(SettingError, match="refuses: failed with 302"):
        two[0].connection().put(f"/ngrpo/tensors/{part.name}", part.octets)


@contextmanager
def socket_that_says_nothing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


TENSORS = {f"layer.{number}": torch.randn(8) for number in range(4)}


def test_weights_go_to_all_and_a_server_that_fails_gets_no_more_of_them(
    two: tuple[StandIn, StandIn], caplog: pytest.LogCaptureFixture
) -> None:
    two[1].fails = [(0, None)]
    parts = list(cut(TENSORS.items(), 40))
    version, _, size = ServerGroup([one.connection() for one in two]).send_weights(parts, 3)
    assert version == version_of(part.name for part in parts)
    assert size == sum(len(part.octets) for part in parts)
    assert two[0].weights == [[part.name for part in parts]]
    assert (two[1].weights, two[1].puts) == ([], 0)
    assert [record.message.partition(" does")[0] for record in caplog.records] == [two[1].url]


def test_weights_that_nobody_takes_are_an_error(two: tuple[StandIn, StandIn]) -> None:
    two[0].fails, two[1].fails = [(0, None)], [(500, None)]
    with pytest.raises(ServerUnavailable):
        ServerGroup([one.connection() for one in two]).send_weights(cut(TENSORS.items(), 1 << 20), 3)


def test_a_part_that_is_there_is_not_sent_again(two: tuple[StandIn, StandIn]) -> None:
    part = TensorPart.of(TENSORS)
    two[0].held = {part.name}
    ServerGroup([one.connection() for one in two]).put(part)
    assert (two[0].puts, two[1].puts) == (0, 1)


@pytest.mark.parametrize(
    "url", ["", "here", "ftp://here", "http://", "http://here:99999", "http://me:secret@here", "http://here/?a=1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="is no address of a server"):
        RemoteExplorer(url)


def test_no_server_is_refused() -> None:
    with pytest.raises(SettingError, match=r"url=\[\] names no server"):
        RemoteExplorer([])
    with pytest.raises(SettingError, match="retries=-1 is negative"):
        RemoteExplorer("http://127.0.0.1:9", retries=-1)


@pytest.mark.parametrize("prompts", [3, [["a"]], [3.5], [None], None, {"a": 1}, b"text"])
def test_what_is_no_prompt_is_refused(prompts: Any) -> None:
    with pytest.raises(SettingError, match="are neither text, token ids nor messages"):
        RemoteExplorer("http://127.0.0.1:9", retries=0).rollout(prompts)


@pytest.mark.parametrize("seed", [1.0, None, True, "1"])
def test_a_seed_that_would_make_other_keys_is_refused(seed: Any) -> None:
    with pytest.raises(SettingError, match=r"^seed=.* is no whole number"):
        RemoteExplorer("http://127.0.0.1:9", retries=0).rollout("a question", seed=seed)
