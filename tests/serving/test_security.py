"""Nobody gets in without the token, nothing gets too large, and no request runs code."""

import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_server import QUESTION, RunningServer, running_server

from ngrpo.errors import SettingError
from ngrpo.remote.connection import TOKEN_VARIABLE
from ngrpo.remote.explorer import RemoteExplorer
from ngrpo.serving.settings import ServerSettings
from ngrpo.serving.web_protocol import PatientProtocol

TOKEN = "a-long-random-text-of-this-test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
GENERATE = {"requests": [{"prompt_ids": [5, 6], "key": 1}]}
PATHS = [
    ("GET", "/metrics"), ("GET", "/ngrpo/server"), ("GET", "/ngrpo/strategies"), ("GET", "/ngrpo/weights"),
    ("GET", "/ngrpo/embedding"), ("GET", "/v1/models"), ("POST", "/ngrpo/generate"), ("POST", "/ngrpo/weights"),
    ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("PUT", f"/ngrpo/tensors/{'0' * 64}"),
    ("HEAD", f"/ngrpo/tensors/{'0' * 64}"), ("GET", "/nowhere"),
]  # fmt: skip


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GUARDED_TOKEN", TOKEN)
        limits = ("server.max_body_mib=0.01", "server.max_part_mib=0.01", "server.max_requests=4")
        with running_server("server.token_variable=GUARDED_TOKEN", *limits) as running:
            yield running


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}])
def test_no_path_but_health_is_open(guarded: RunningServer, method: str, path: str, headers: dict[str, str]) -> None:
    status, _, told = guarded.ask(method, path, GENERATE if method in ("POST", "PUT") else None, headers)
    assert status == 401
    assert told["WWW-Authenticate"] == "Bearer"


def test_health_is_open_and_tells_nothing(guarded: RunningServer) -> None:
    assert guarded.ask("GET", "/health")[:2] == (200, {"status": "ok"})


def test_the_token_opens(guarded: RunningServer) -> None:
    assert guarded.ask("POST", "/ngrpo/generate", GENERATE, BEARER)[0] == 200
    explorer = RemoteExplorer(guarded.url, token=TOKEN)
    assert len(explorer.rollout(QUESTION, max_new_tokens=2)) == 1
    with pytest.raises(SettingError, match="the bearer token is missing or wrong"):
        RemoteExplorer(guarded.url, token="another-token-of-this").rollout(QUESTION)


def test_the_clients_token_comes_from_the_environment(guarded: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert RemoteExplorer(guarded.url).strategies()["neighbor"]["k"] == 3


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_other_machines_are_listened_to_with_a_token_only(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(SettingError, match=f"server.host={host} is reached from other machines"):
        ServerSettings(host=host)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert TOKEN not in repr(ServerSettings(host=host))


@pytest.mark.parametrize("token", ["short", "with a space in it so long", "ü" * 20])
def test_a_token_that_can_be_guessed_or_not_sent_is_refused(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(SettingError, match="is no ASCII text of 16 characters"):
        ServerSettings()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_needs_none(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert ServerSettings(host=host).token is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_without_a_token_a_page_cannot_ask_by_a_name_of_its_own(server: RunningServer, host: str) -> None:
    assert server.ask("GET", "/ngrpo/server", headers={"Host": host})[0] == 403


def test_a_form_of_a_page_is_not_read(server: RunningServer) -> None:
    status, said, _ = server.ask("POST", "/ngrpo/generate", GENERATE, {"Content-Type": "text/plain"})
    assert status == 415
    assert said["error"]["message"] == "the body is not application/json; set its Content-Type."


def test_bodies_have_a_largest_size(guarded: RunningServer) -> None:
    long = {"messages": [{"role": "user", "content": "x" * 20_000}]}
    status, said, _ = guarded.ask("POST", "/v1/chat/completions", long, BEARER)
    assert (status, said["error"]["message"]) == (413, "the body is larger than 0.01 MiB; send less at once.")
    status, _, _ = guarded.ask("PUT", f"/ngrpo/tensors/{'0' * 64}", b"x" * 20_000, BEARER)
    assert status == 413


def test_a_body_without_an_announced_length_has_one_too(guarded: RunningServer) -> None:
    connection = HTTPConnection("127.0.0.1", guarded.port, timeout=30)
    chunks = iter([b"x" * 4000] * 8)
    headers = BEARER | {"Content-Type": "application/json"}
    try:
        connection.request("POST", "/ngrpo/generate", chunks, headers, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it hung up before all was sent
    finally:
        connection.close()
    assert guarded.ask("GET", "/health")[0] == 200


def test_the_body_of_a_client_that_offers_http_2_is_read(server: RunningServer) -> None:
    """As Java's client does with each request; uvicorn's quicker protocol, of httptools, leaves such bodies out."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABk"}
    status, said, _ = server.ask("POST", "/ngrpo/generate", GENERATE, offer)
    assert (status, len(said["rollouts"])) == (200, 1)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with running_server("server.body_timeout_s=0.3") as running:
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
            head = "POST /ngrpo/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - start < 8


def test_headers_have_a_largest_size(server: RunningServer) -> None:
    try:
        status, _, _ = server.ask("GET", "/health", headers={"X-Long": "x" * 2_000_000})
    except ConnectionError:  # it hung up before all was sent
        status = 400
    assert status in (400, 431)
    assert server.ask("GET", "/health")[0] == 200


def test_requests_have_a_largest_number(guarded: RunningServer) -> None:
    five = {"requests": [{"prompt_ids": [5], "key": number} for number in range(5)]}
    assert guarded.ask("POST", "/ngrpo/generate", five, BEARER)[0] == 400
    several = {"prompt": ["a", "b", "c"], "n": 2}
    status, said, _ = guarded.ask("POST", "/v1/completions", several, BEARER)
    assert (status, said["error"]["message"]) == (400, "n=2 of 3 prompts are more than server.max_requests=4.")


def test_too_many_that_wait_are_sent_away() -> None:
    with running_server("server.max_waiting=3") as running:
        four = {"requests": [{"prompt_ids": [5], "key": number} for number in range(4)]}
        status, said, headers = running.ask("POST", "/ngrpo/generate", four)
        assert (status, said["error"]["code"], headers["Retry-After"]) == (503, "busy", "1")
        running.post("/ngrpo/generate", {"requests": four["requests"][:3]})


CODE: list[tuple[Any, str]] = [
    ("neighbor", "give an object"),
    ({"name": "os.system"}, "is no strategy; choose one of"),
    ({"name": "custom"}, "is no strategy; choose one of"),
    ({"name": "../../etc/passwd"}, "is no strategy; choose one of"),
    ({"name": ["neighbor"]}, "is no strategy; choose one of"),
    ({"name": "neighbor", "_target_": "os.system"}, "exploration._target_ is no setting of neighbor"),
    ({"name": "neighbor", "_args_": ["ls"]}, "exploration._args_ is no setting of neighbor"),
    ({"_target_": "ngrpo.exploration.token.TokenSampling"}, "exploration._target_ is no setting"),
    ({"name": "neighbor", "metric": "cosine"}, "is no number, and requests may change numbers only"),
    ({"name": "neighbor", "end_token": "${oc.env:HOME}"}, "is no number, and requests may change numbers only"),
    ({"name": "neighbor", "rate": "${oc.env:HOME}"}, "is no number, and requests may change numbers only"),
    ({"name": "neighbor", "rate": {"_target_": "os.system"}}, "is no number, and requests may change numbers only"),
    ({"name": "neighbor", "rate": [1]}, "does not fit; neighbor takes float"),
    ({"name": "neighbor", "rate": 2}, "exploration.rate=2 is not a probability"),
    ({"name": "neighbor", "k": 0}, "exploration.k=0 leaves no anchor"),
    ({"name": "neighbor", "k": 1000}, "a mixture of 1000 ids is more than server.max_width=64"),
    ({"name": "token", "top_k": 10**7}, "records up to 10000000 ids a token, and 512 are the most"),
    ({"name": "token", "top_p": 0.9, "largest_support": 10**7}, "records up to 10000000 ids a token"),
    ({"name": "min_p", "largest_support": 513}, "records up to 513 ids a token"),
    ({"name": "neighbor", "k": True}, "does not fit; neighbor takes int"),
    ({"name": "neighbor", "excluded_ids": [9999]}, "names more than the 576 tokens of the model"),
    ({"name": "neighbor", "excluded_ids": ["x"]}, "is no number, and requests may change numbers only"),
    ({"name": "neighbor_annealed", "schedule_iterations": 10**30}, "is no number of 64 bits"),
    ({"name": "gaussian", "tau": 10**30}, "is no number of 64 bits"),
]


@pytest.mark.parametrize(("exploration", "said"), CODE)
def test_strategies_come_by_name_and_numbers_only(server: RunningServer, exploration: Any, said: str) -> None:
    assert said in server.refusal("/ngrpo/generate", GENERATE | {"exploration": exploration})


REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"requests": []}, "give a list of 1 to 1024 objects"),
    ({"requests": [{"prompt_ids": [5]}]}, "key=None"),
    ({"requests": [{"prompt_ids": [5], "key": -1}]}, "requests[0].key=-1"),
    ({"requests": [{"prompt_ids": [5], "key": 2**63}]}, "requests[0].key="),
    ({"requests": [{"key": 1}]}, "either prompt_ids or messages"),
    ({"requests": [{"prompt_ids": [], "key": 1}]}, "empty prompt"),
    ({"requests": [{"prompt_ids": [99999], "key": 1}]}, "has token 99999"),
    ({"requests": [{"prompt_ids": [5] * 129, "key": 1}]}, "at most 128 token ids"),
    ({"requests": [{"prompt_ids": [5], "key": 1, "max_new_tokens": 0}]}, "requests[0].max_new_tokens=0"),
    ({"requests": [{"prompt_ids": [5], "key": 1, "more": 1}]}, "'requests[0].more' is not served here"),
    ({"requests": [{"prompt_ids": [5], "key": 1, "prefix": {"ids": []}}]}, "a prefix has no tokens"),
    ({"requests": [{"prompt_ids": [5], "key": 1, "prefix": {"ids": [7], "mixture": 3}}]}, "a mixture needs positions"),
    (GENERATE | {"sampling": {"temperature": -1}}, "sampling.temperature=-1"),
    (GENERATE | {"sampling": {"max_new_tokens": 65}}, "sampling.max_new_tokens=65"),
    (GENERATE | {"sampling": {"stop_ids": [99999]}}, "stop token 99999"),
    (GENERATE | {"weights": {"newest": 1}}, "'weights.newest' is not served here"),
    (GENERATE | {"model": "demo"}, "'model' is not served here"),
]


@pytest.mark.parametrize(("body", "said"), REQUESTS)
def test_a_request_that_cannot_be_served_is_refused_in_a_sentence(
    server: RunningServer, body: dict[str, Any], said: str
) -> None:
    assert said in server.refusal("/ngrpo/generate", body)


NAMES = st.sampled_from(
    ["requests", "prompt_ids", "key", "exploration", "name", "rate", "k", "sampling", "temperature", "weights",
     "prefix", "ids", "mixture", "messages", "role", "content", "prompt", "n", "max_tokens", "tables", "text"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.integers() | st.floats() | st.text(max_size=9)
    | st.sampled_from(["neighbor", "user", "demo", "f" * 64]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=16,
)  # fmt: skip
ASKED = st.sampled_from(["/ngrpo/generate", "/ngrpo/weights", "/v1/completions", "/v1/chat/completions"])


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=ASKED, body=st.dictionaries(NAMES, VALUES, max_size=5) | st.binary(max_size=40))
def test_malformed_bodies_are_refused_and_the_server_goes_on(server: RunningServer, path: str, body: Any) -> None:
    status, said, _ = server.ask("POST", path, body)
    assert status == 200 or 400 <= status < 500, said
    if status != 200:
        assert said["error"]["message"].endswith((".", "...")), said


def test_it_still_works_after_all_that(server: RunningServer) -> None:
    assert server.ask("GET", "/health")[:2] == (200, {"status": "ok"})
    server.post("/ngrpo/generate", GENERATE)


def test_clients_that_hang_up_do_no_harm(server: RunningServer) -> None:
    body = b'{"requests": [{"prompt_ids": [5, 6], "key": 1}]}'
    head = "POST /ngrpo/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for cut in (10, len(body)):
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:cut])
    server.post("/ngrpo/generate", GENERATE)
    deadline = time.monotonic() + 20
    while b"ngrpo_waiting_rollouts 0.0" not in server.ask("GET", "/metrics")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_headers_that_do_not_end_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from a new connection, byte by byte, nor after a good request."""
    monkeypatch.setattr(PatientProtocol, "headers_s", 0.3)
    with running_server() as running:
        for begin in (b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
                if begin:
                    client.sendall(begin)
                    assert client.recv(4096).startswith(b"HTTP/1.1 200")
                start = time.monotonic()
                with pytest.raises(ConnectionError):
                    _send_slowly(client, seconds=8)
                assert time.monotonic() - start < 3


def _send_slowly(client: socket.socket, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.sendall(b"G")
        time.sleep(0.1)


def test_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "headers_s", 0.2)
    with running_server() as running, socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
        assert client.recv(10) == b""


def test_a_rollout_takes_longer_than_headers_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "headers_s", 0.02)
    with running_server() as running:
        running.post("/ngrpo/generate", {"requests": [{"prompt_ids": [5], "key": key} for key in range(40)]})


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(server: RunningServer) -> None:
    start = time.monotonic()
    long = "7 + " * 3_000_000
    assert "have" in server.refusal("/v1/completions", {"prompt": long})
    assert "shorten it" in server.refusal("/v1/chat/completions", {"messages": [{"role": "user", "content": long}]})
    assert time.monotonic() - start < 3
