"""The loop of several callers on one engine, which a stand-in plays; needs no vLLM."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from ngrpo.rollout.vllm.request_loop import Call, RequestLoop

WAIT_S = 20.0


@dataclass
class Output:
    request_id: str
    finished: bool


class FakeEngine:
    """Finishes every request after as many steps as its prompt says; used by one thread at a time, or it fails."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.said: list[tuple[Any, ...]] = []
        self.steps = 0
        self.fails_at: int | None = None
        self.on_step: Callable[[], None] = lambda: None
        self._in_use = threading.Lock()

    def _say(self, *what: Any) -> None:
        assert self._in_use.acquire(blocking=False), "two threads at once"
        self.said.append(what)
        self._in_use.release()

    def add_request(self, request_id: str, prompt: int, parameters: None) -> None:
        self._say("add", request_id)
        self.left[request_id] = prompt

    def abort_request(self, ids: list[str]) -> None:
        self._say("abort", *ids)
        for request_id in ids:
            self.left.pop(request_id, None)

    def collective_rpc(self, method: str, args: tuple[Any, ...]) -> list[Any]:
        self._say(method, *args)
        return [method]

    def sleep(self, level: int, mode: str) -> None:
        self._say("pause")

    def wake_up(self, tags: list[str]) -> None:
        self._say("resume")

    def step(self) -> list[Output]:
        assert self._in_use.acquire(blocking=False), "two threads at once"
        try:
            time.sleep(0.0005)
            self.on_step()
            self.steps += 1
            if self.steps == self.fails_at:
                raise ValueError("a broken forward")
            self.left = {request_id: left - 1 for request_id, left in self.left.items()}
            done = [request_id for request_id, left in self.left.items() if left == 0]
            for request_id in done:
                del self.left[request_id]
            return [Output(request_id, True) for request_id in done] + [Output(i, False) for i in self.left]
        finally:
            self._in_use.release()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def loop(engine: FakeEngine) -> RequestLoop:
    return RequestLoop(engine, nullcontext, pausing=False)


def run(loop: RequestLoop, lengths: list[int]) -> list[str]:
    """Makes a call of requests that take so many steps; returns their ids in the order in which they finish."""
    finished: list[str] = []
    with loop.call("begin", "end") as call:
        loop.add(call, [(f"{call.number}-{number}", length, None) for number, length in enumerate(lengths)])
        while len(finished) < len(lengths):
            finished += [output.request_id for output in loop.finished(call)]
    return [name.partition("-")[2] for name in finished]


class Callers:
    """Threads, and what they returned or raised."""

    def __init__(self, *jobs: Callable[[], Any]) -> None:
        self.results: list[Any] = [None] * len(jobs)
        self._threads = [threading.Thread(target=self._run, args=(n, job), daemon=True) for n, job in enumerate(jobs)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int, job: Callable[[], Any]) -> None:
        try:
            self.results[number] = job()
        except BaseException as error:
            self.results[number] = error

    def joined(self) -> list[Any]:
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a caller hangs"
        return self.results


def test_a_call_gets_its_outputs_as_they_come(loop: RequestLoop, engine: FakeEngine) -> None:
    assert run(loop, [3, 1, 2]) == ["1", "2", "0"]
    assert [said[0] for said in engine.said] == ["begin", "add", "add", "add", "abort", "end"]
    assert engine.steps == 3


def test_many_callers_get_their_own_outputs(loop: RequestLoop, engine: FakeEngine) -> None:
    lengths = [[1 + (7 * caller + 3 * number) % 11 for number in range(caller + 1)] for caller in range(12)]
    results = Callers(*(lambda own=own: run(loop, own) for own in lengths)).joined()
    for own, finished in zip(lengths, results, strict=True):
        assert sorted(finished, key=int) == [str(number) for number in range(len(own))]
        assert [own[int(name)] for name in finished] == sorted(own)
    assert engine.left == {}


def test_a_long_call_does_not_keep_a_short_one_waiting(loop: RequestLoop, engine: FakeEngine) -> None:
    long = Callers(lambda: run(loop, [3000]))
    while not engine.steps:
        time.sleep(0.001)
    before = engine.steps
    assert run(loop, [5]) == ["0"]
    assert engine.steps - before < 500
    long.joined()


def test_a_failing_step_reaches_every_caller(loop: RequestLoop, engine: FakeEngine) -> None:
    engine.fails_at = 40
    results = Callers(*(lambda n=n: run(loop, [60 + n]) for n in range(4))).joined()
    assert [str(error) for error in results] == ["a broken forward"] * 4
    with pytest.raises(RuntimeError, match="vLLM failed before .ValueError: a broken forward. and must be started"):
        run(loop, [1])


def test_a_call_that_fails_takes_back_its_own_requests_only(loop: RequestLoop, engine: FakeEngine) -> None:
    other = Callers(lambda: run(loop, [400, 300]))
    while len(engine.left) < 2:
        time.sleep(0.001)

    def broken() -> None:
        with loop.call("begin", "end") as call:
            loop.add(call, [("x", 1, None), ("y", 9999, None)])
            loop.finished(call)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert ("abort", "y") in engine.said
    assert engine.said[-1] == ("end", 1)
    assert other.joined() == [["1", "0"]]
    assert run(loop, [2]) == ["0"]


def test_a_session_that_does_not_begin_leaves_nothing(loop: RequestLoop, engine: FakeEngine) -> None:
    def refuse(method: str, args: tuple[Any, ...]) -> list[Any]:
        if method == "begin":
            raise ValueError("too wide")
        return []

    usual, engine.collective_rpc = engine.collective_rpc, refuse  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="too wide"):
        run(loop, [1])
    engine.collective_rpc = usual  # type: ignore[method-assign]
    assert run(loop, [1]) == ["0"]


def test_what_changes_the_engine_waits_for_calls_and_keeps_new_ones_waiting(
    loop: RequestLoop, engine: FakeEngine
) -> None:
    order: list[str] = []

    def first() -> None:
        run(loop, [200])
        order.append("call")

    def change() -> None:
        with loop.alone():
            loop.rpc("weights")
            time.sleep(0.05)
            order.append("change")

    def late() -> None:
        run(loop, [1])
        order.append("late call")

    calls = [Callers(first)]
    while not engine.steps:
        time.sleep(0.001)
    calls.append(Callers(change))
    time.sleep(0.02)
    calls.append(Callers(late))
    for caller in calls:
        assert caller.joined() == [None]
    assert order == ["call", "change", "late call"]
    assert [said[0] for said in engine.said].index("weights") == 4


def test_an_engine_that_is_closed_ends_its_calls(loop: RequestLoop, engine: FakeEngine) -> None:
    callers = Callers(lambda: run(loop, [10**6]), lambda: run(loop, [10**6]))
    while len(engine.left) < 2:
        time.sleep(0.001)
    loop.stop()
    assert [str(error) for error in callers.joined()] == ["the engine was closed"] * 2


def test_an_engine_beside_waits_for_the_first_requests(engine: FakeEngine) -> None:
    loop = RequestLoop(engine, nullcontext, pausing=True)
    with loop.call("begin", "end") as call:
        loop.add(call, [("a", 1, None), ("b", 5, None)])
        loop.finished(call)
        loop.add(call, [("c", 1, None)])
    assert [said[0] for said in engine.said] == ["begin", "pause", "add", "add", "resume", "add", "abort", "end"]


def test_an_interrupt_waits_for_the_end_of_the_step(loop: RequestLoop, engine: FakeEngine) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        engine.on_step = lambda: os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            run(loop, [5])
        assert engine.steps == 1
        engine.on_step = lambda: None
        assert run(loop, [5]) == ["0"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_outputs_of_a_call_that_has_gone_are_dropped(loop: RequestLoop, engine: FakeEngine) -> None:
    with loop.call("begin", "end") as gone:
        loop.add(gone, [("old", 3, None)])
    engine.left["old"] = 1  # as a step in flight would still bring it
    assert run(loop, [2]) == ["0"]
    assert isinstance(gone, Call)
    assert gone.outputs == []


def test_watched_requests_are_handed_out_as_they_go_on_and_withdrawn_ones_no_more(engine: FakeEngine) -> None:
    loop = RequestLoop(engine, nullcontext, pausing=False)
    with loop.call("begin", "end") as call:
        call.watched.add("a")
        loop.add(call, [("a", 4, None), ("b", 3, None), ("c", 50, None)])
        seen = loop.finished(call)
        assert [(one.request_id, one.finished) for one in seen] == [("a", False)]
        loop.withdraw(call, ["c"])
        assert ("abort", "c") in engine.said
        seen = []
        while call.running:
            seen += loop.finished(call)
        assert [one.request_id for one in seen if one.finished] == ["b", "a"]
        assert {one.request_id for one in seen} == {"a", "b"}
        assert (call.watched, loop._owners) == (set(), {})


def test_a_waiting_caller_is_interrupted_from_another_thread(engine: FakeEngine) -> None:
    loop = RequestLoop(engine, nullcontext, pausing=False)
    with loop.call("begin", "end") as call:
        loop.add(call, [("a", 100_000, None)])
        threading.Timer(0.05, loop.interrupt, [call]).start()
        assert loop.finished(call) == []
        assert engine.steps > 5
        loop.withdraw(call, ["a"])
