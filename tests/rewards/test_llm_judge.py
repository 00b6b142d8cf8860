"""The judge against a local stand-in for an endpoint: grades, retries, refusals, keys, time limits."""

import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.llm_judge import LLMJudge
from ngrpo.types.scores import Score, Verdict

Answer = tuple[int, Any]


def ungraded(reward: float | Score) -> bool:
    return isinstance(reward, Score) and math.isnan(reward.reward) and reward.status is Verdict.UNGRADED


class StandIn:
    """An endpoint that answers each request with what ``answer`` makes of it; keeps what it was sent."""

    def __init__(self, answer: Callable[[str], Answer], headers: dict[str, str] | None = None) -> None:
        self.seen: list[tuple[dict[str, Any], str | None, str]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stand_in.seen.append((content, self.headers["Authorization"], self.path))
                status, reply = answer(content["messages"][0]["content"])
                body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # of who has given up waiting
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"


def said(text: str) -> Answer:
    return 200, {"choices": [{"message": {"content": text}}]}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., StandIn]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NGRPO_CACHE", str(tmp_path))
    made: list[StandIn] = []

    def one(answer: Callable[[str], Answer], headers: dict[str, str] | None = None) -> StandIn:
        made.append(StandIn(answer, headers))
        return made[-1]

    yield one
    for stand_in in made:
        stand_in.server.shutdown()
        stand_in.server.server_close()


def judge(url: str, **settings: Any) -> LLMJudge:
    made = LLMJudge(url, "grader", **{"timeout_s": 5.0, "cache": False, **settings})
    made.first_wait_s = 0.01
    return made


def test_grades_become_rewards_in_order(serve: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    def by_length(asked: str) -> Answer:
        (completion,) = re.findall(r"Answer to grade:\n(.*)", asked)
        time.sleep(0.05 * (5 - len(completion)))  # the last is the first to reply
        return said(f"Some words. **Score:** {len(completion)}")

    monkeypatch.setenv("MY_KEY", "secret")
    there = serve(by_length)
    reward = judge(there.url + "/", key_variable="MY_KEY", max_tokens=7)
    assert reward(["a", "aa", "aaaaa"], ["p"] * 3, ["x"] * 3) == [0.1, 0.2, 0.5]
    content, key, path = there.seen[0]
    assert (content["model"], content["temperature"], content["max_tokens"]) == ("grader", 0.0, 7)
    assert (key, path) == ("Bearer secret", "/v1/chat/completions")
    assert "secret" not in repr(vars(reward))


def test_the_judge_sees_messages_reference_and_completion_as_they_are(serve: Callable[..., StandIn]) -> None:
    there = serve(lambda asked: said("Score: 4"))
    asked = "{prompt}|{answer}|{completion}|{low}|{high}|{other}"
    reward = judge(there.url, prompt=asked, low=-2, high=4)
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert reward(["{answer} {low}"], [chat], ["7"]) == [1.0]
    ((content, key, _),) = there.seen
    assert content["messages"] == [{"role": "user", "content": "system: s\nuser: u|7|{answer} {low}|-2|4|{other}"}]
    assert key is None


@pytest.mark.parametrize(("text", "reward"), [("Score: 12", 1.0), ("score = -3", 0.0), ("Score: 3, no: Score: 5", 0.5)])
def test_the_last_grade_counts_and_stays_in_its_range(serve: Callable[..., StandIn], text: str, reward: float) -> None:
    assert judge(serve(lambda asked: said(text)).url)(["c"], ["p"], ["a"]) == [reward]


def test_a_reply_without_a_grade_excludes_the_response(serve: Callable[..., StandIn]) -> None:
    there = serve(lambda asked: said("good" if "bad" in asked else "Score: 10"))
    rewards = judge(there.url)(["bad", "c"], ["p"] * 2, ["a"] * 2)
    assert ungraded(rewards[0])
    assert rewards[1] == 1.0
    assert len(there.seen) == 2  # it is not asked again


@pytest.mark.parametrize("failure", [(429, {}), (503, {}), (200, b"no JSON"), (200, {"choices": []})])
def test_a_failure_that_may_pass_is_tried_again(serve: Callable[..., StandIn], failure: Answer) -> None:
    answers = iter([failure, failure, said("Score: 10")])
    there = serve(lambda asked: next(answers))
    assert judge(there.url, retries=2)(["c"], ["p"], ["a"]) == [1.0]
    assert len(there.seen) == 3


def test_what_stays_without_a_reply_is_excluded_but_not_everything(serve: Callable[..., StandIn]) -> None:
    there = serve(lambda asked: (500, {}) if "bad" in asked else said("Score: 10"))
    rewards = judge(there.url, retries=1)(["bad", "c"], ["p"] * 2, ["a"] * 2)
    assert ungraded(rewards[0])
    assert rewards[1] == 1.0
    with pytest.raises(RunError, match=r"^the judge at reward.url=http.* gave no reply \(HTTP 500\); see to it"):
        judge(there.url, retries=1)(["bad"] * 2, ["p"] * 2, ["a"] * 2)


def test_no_grade_in_several_replies_ends_the_run(serve: Callable[..., StandIn]) -> None:
    there = serve(lambda asked: said("good"))
    with pytest.raises(
        RunError, match=r"gave none of 2 responses a grade \('good'\); check reward.prompt, reward.model"
    ):
        judge(there.url)(["b", "c"], ["p"] * 2, ["a"] * 2)
    assert ungraded(judge(there.url)(["b"], ["p"], ["a"])[0])


def test_a_server_may_ask_for_a_longer_wait(serve: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("ngrpo.rewards.llm_judge.time.sleep", waited.append)
    answers = iter([(429, {}), (429, {}), said("Score: 10")])
    there = serve(lambda asked: next(answers), {"Retry-After": "7"})
    assert judge(there.url, retries=2)(["c"], ["p"], ["a"]) == [1.0]
    assert waited == [7.0, 7.0]


def test_what_was_asked_before_is_not_asked_again(serve: Callable[..., StandIn]) -> None:
    grades = iter(range(1, 9))
    there = serve(lambda asked: said(f"Score: {next(grades)}"))
    first = judge(there.url, concurrency=1, cache=True)
    assert first(["a", "b", "a"], ["p"] * 3, ["x"] * 3) == [0.1, 0.2, 0.1]
    again = judge(there.url, concurrency=1, cache=True)  # as a resumed run has it
    assert again(["b", "a", "c"], ["p"] * 3, ["x"] * 3) == [0.2, 0.1, 0.3]
    assert len(there.seen) == 3
    other = judge(there.url, concurrency=1, cache=True, max_tokens=9)
    assert other(["a"], ["p"], ["x"]) == [0.4]
    assert judge(there.url)(["a"], ["p"], ["x"]) == [0.5]


def test_a_damaged_cache_is_none(serve: Callable[..., StandIn]) -> None:
    there = serve(lambda asked: said("Score: 5"))
    made = judge(there.url, cache=True)
    assert made(["a"], ["p"], ["x"]) == [0.5]
    file = made._cached.file
    file.write_bytes(file.read_bytes() + b'["cut of')
    assert judge(there.url, cache=True)(["a"], ["p"], ["x"]) == [0.5]
    file.unlink()
    file.mkdir()
    assert judge(there.url, cache=True)(["a"], ["p"], ["x"]) == [0.5]
    assert len(there.seen) == 2
    assert b"Question" not in b"".join(one.read_bytes() for one in file.parent.glob("*.jsonl") if one.is_file())


def test_the_key_is_in_no_message(
    serve: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key\n")
    there = serve(lambda asked: (403, {"error": "secret-key is no key"}))
    with pytest.raises(RunError, match=r"HTTP 403: \{\"error\": \"\*\*\* is no key\"\}") as caught:
        judge(there.url)(["c"], ["p"], ["a"])
    assert there.seen[0][1] == "Bearer secret-key"
    monkeypatch.setenv("OPENAI_API_KEY", "secret\nkey")
    with pytest.raises(SettingError, match=r"OPENAI_API_KEY .* holds characters that no key has") as other:
        judge(there.url)(["c"], ["p"], ["a"])
    assert "secret" not in f"{caught.value}{other.value}{caplog.text}"


def test_a_refusal_is_not_tried_again_and_says_what_to_check(serve: Callable[..., StandIn]) -> None:
    there = serve(lambda asked: (401, {"error": "bad key"}))
    sentence = r"refuses the request \(HTTP 401: \{\"error\": \"bad key\"\}\); check .* variable OPENAI_API_KEY\.$"
    with pytest.raises(RunError, match=sentence):
        judge(there.url)(["c"], ["p"], ["a"])
    assert len(there.seen) == 1


def test_a_slow_server_costs_the_time_limit(serve: Callable[..., StandIn]) -> None:
    def slow(asked: str) -> Answer:
        time.sleep(2.0)
        return said("Score: 1")

    start = time.monotonic()
    with pytest.raises(RunError, match="gave no reply"):
        judge(serve(slow).url, timeout_s=0.2, retries=1)(["c"], ["p"], ["a"])
    assert time.monotonic() - start < 1.9


def test_no_server_is_no_reply() -> None:
    with pytest.raises(RunError, match=r"gave no reply \(URLError"):
        judge("http://127.0.0.1:9/v1", retries=0)(["c"], ["p"], ["a"])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"url": "localhost"}, r"reward\.url=localhost is no address"),
        ({"url": "https://me:secret@host/v1"}, r"^reward\.url has a user or a key in front of its host"),
        ({"prompt": "grade"}, r"reward\.prompt shows the judge no \{completion\}"),
        ({"low": 3.0, "high": 3.0}, r"reward\.high=3.0 is not above reward\.low=3.0"),
        ({"retries": -1}, r"reward\.retries=-1 cannot work; set it to 0 or more"),
        ({"concurrency": 0}, r"reward\.concurrency=0 cannot work"),
        ({"timeout_s": math.nan}, r"reward\.timeout_s=nan is no time to answer in"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        LLMJudge(**{"url": "http://localhost:1", "model": "m", **settings})
