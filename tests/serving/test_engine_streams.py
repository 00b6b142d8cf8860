"""What can be one stream joins it while it runs; weights change between streams, in the order of the asking."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest

from ngrpo.exploration.token import TokenSampling
from ngrpo.serving import engine_streams
from ngrpo.serving.engine_streams import EngineStreams, Opened
from ngrpo.serving.generation import Choice, Generation, Wanted, Weights
from ngrpo.serving.refusals import Refusal
from ngrpo.types.rollouts import Request, Rollout, Sampling

WEIGHTS = Weights("0" * 16, 3, 0.0)


class Seen:
    """Notes what its works are told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int, object]] = []
        self.weights: list[Weights] = []

    def started(self, weights: Weights) -> None:
        assert not self.said
        self.weights.append(weights)

    def tokens(self, place: int, ids: Sequence[int]) -> None:
        self.said.append(("tokens", place, list(ids)))

    def finished(self, place: int, rollout: Rollout) -> None:
        self.said.append(("finished", place, rollout))


def work(name: str, *keys: int, wanted: Wanted | None = None, watcher: Seen | None = None) -> Generation:
    requests = [Request((1,), key) for key in keys]
    return Generation(requests, Sampling(1.0, 4, ()), Choice(name, TokenSampling()), wanted or Wanted(), watcher)


class FakeStream:
    """Finishes a request at each turn, in the order of their coming, once the engine may go on."""

    def __init__(self, engine: "FakeEngine", name: str) -> None:
        self._engine = engine
        self._name = name
        self._left: dict[int, int] = {}
        self._watched: set[int] = set()
        self._made: dict[int, int] = {}
        self._added = 0

    @property
    def unfinished(self) -> int:
        return len(self._left)

    def add(self, requests: Sequence[Request], watched: bool = False) -> None:
        for request in requests:
            if request.key < 0:
                raise ValueError("a broken engine")
            self._left[self._added] = request.key
            if watched:
                self._watched.add(self._added)
            self._added += 1
        self._engine.note(self._name, [request.key for request in requests])

    def wait(self) -> list[int]:
        if not self._engine.go_on.wait(0.005):
            return []
        number = next(iter(self._left))
        self._made[number] = self._left.pop(number)
        return [number]

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        return [cast(Rollout, self._made.pop(number)) for number in numbers]

    def news(self) -> dict[int, list[int]]:
        return {number: [key] for number, key in self._left.items() if number in self._watched}

    def withdraw(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self._engine.note("withdrawn", [self._left.pop(number)])

    def interrupt(self) -> None:
        pass


class FakeEngine:
    """Opens streams that make nothing before they may."""

    def __init__(self) -> None:
        self.said: list[tuple[str, list[int]]] = []
        self.open = self.most = 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def note(self, name: str, keys: list[int]) -> None:
        with self._lock:
            self.said.append((name, keys))

    @contextmanager
    def opened(self, first: Generation) -> Iterator[Opened]:
        with self._lock:
            self.open += 1
            self.most = max(self.most, self.open)
        try:
            yield Opened(FakeStream(self, first.choice.name), WEIGHTS)
        finally:
            with self._lock:
                self.open -= 1

    def action(self, number: int) -> Callable[[], int]:
        def act() -> int:
            assert self.open == 0
            self.note("action", [number])
            return number

        return act


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    made = FakeEngine()
    yield made
    made.go_on.set()


def streams(engine: FakeEngine, most: int) -> EngineStreams:
    return EngineStreams(engine.opened, lambda error, _: error, most)


def made_of(one: Generation) -> list[object]:
    return list(one.done.result(10).rollouts)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_work_joins_while_others_run_and_each_gets_its_own(engine: FakeEngine) -> None:
    made = streams(engine, most=1)
    first, second = work("a", 1, 2), work("a", 3)
    made.submit(first)
    until(lambda: engine.said == [("a", [1, 2])])
    made.submit(second)
    until(lambda: len(engine.said) == 2)
    engine.go_on.set()
    assert made_of(first) == [1, 2]
    assert made_of(second) == [3]
    assert second.done.result().weights is WEIGHTS
    assert engine.most == 1
    made.close()


def test_what_waits_for_a_stream_is_begun_together_up_to_the_next_action(engine: FakeEngine) -> None:
    made = streams(engine, most=1)
    works = [work("a", 0), *(work(name, key) for key, name in enumerate("bcbc", start=1))]
    made.submit(works[0])
    until(lambda: len(engine.said) == 1)
    for one in works[1:]:
        made.submit(one)
    done = made.alone(engine.action(100))
    works.append(last := work("b", 5))
    made.submit(last)
    engine.go_on.set()
    for one in works:
        one.done.result(10)
    assert done.result(10) == 100
    assert engine.said == [("a", [0]), ("b", [1, 3]), ("c", [2, 4]), ("action", [100]), ("b", [5])]
    assert engine.most == 1
    made.close()


def test_those_who_ask_at_the_same_moment_are_begun_together(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_streams, "_PAUSE_S", 0.2)
    made = streams(engine, most=1)
    watched = work("a", 9, watcher=Seen())
    works = [*(work("a", 2 * key, 2 * key + 1) for key in range(3)), watched, work("a", 6)]
    engine.go_on.set()
    for one in works:
        made.submit(one)
    assert [made_of(one) for one in works] == [[0, 1], [2, 3], [4, 5], [9], [6]]
    assert engine.said == [("a", [0, 1, 2, 3, 4, 5, 6]), ("a", [9])]
    again = [work("a", key) for key in (10, 11, 12)]  # in the same stream, which waits for more
    for one in again:
        made.submit(one)
    assert [made_of(one) for one in again] == [[10], [11], [12]]
    assert engine.said[2:] == [("a", [10, 11, 12])]
    made.close()


def test_what_the_web_server_is_still_reading_is_begun_with_the_rest(engine: FakeEngine) -> None:
    made = streams(engine, most=1)
    works = [work("a", key) for key in range(4)]

    async def read() -> None:
        for one in works:
            made.submit(one)
            time.sleep(0.1)  # the next one's body, much longer than the pause, in the same turn or the next
            await asyncio.sleep(0)

    asyncio.run(read())
    engine.go_on.set()
    assert [made_of(one) for one in works] == [[0], [1], [2], [3]]
    assert engine.said == [("a", [0, 1, 2, 3])]
    made.close()


def test_a_stream_begins_after_a_while_though_others_still_come(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_streams, "_PAUSE_S", 0.05)
    monkeypatch.setattr(engine_streams, "_GATHERING_S", 0.3)
    made = streams(engine, most=1)
    works = list[Generation]()
    while not engine.said and len(works) < 1000:
        made.submit(one := work("a", len(works)))
        works.append(one)
        time.sleep(0.005)
    engine.go_on.set()
    assert [made_of(one) for one in works] == [[key] for key in range(len(works))]
    assert 3 <= len(engine.said[0][1]) < 1000
    made.close()


def test_several_streams_are_open_at_a_time_and_no_more_than_may(engine: FakeEngine) -> None:
    made = streams(engine, most=3)
    works = [work(name, key) for key, name in enumerate("abcd")]
    for one in works:
        made.submit(one)
    until(lambda: len(engine.said) == 3)
    time.sleep(0.05)
    assert sorted(name for name, _ in engine.said) == ["a", "b", "c"]  # each from a thread of its own
    engine.go_on.set()
    for one in works:
        one.done.result(10)
    assert engine.most == 3
    made.close()


@pytest.mark.parametrize("most", [1, 4])
def test_an_action_is_alone_and_before_what_is_asked_later(most: int, engine: FakeEngine) -> None:
    made = streams(engine, most)
    first, last = work("a", 0), work("a", 1)
    made.submit(first)
    until(lambda: len(engine.said) == 1)
    done = made.alone(engine.action(100))
    made.submit(last)
    time.sleep(0.05)
    assert engine.said == [("a", [0])]
    engine.go_on.set()
    for one in (first, last):
        one.done.result(10)
    assert done.result(10) == 100
    assert engine.said == [("a", [0]), ("action", [100]), ("a", [1])]
    made.close()


def test_two_actions_at_once_are_one_after_the_other(engine: FakeEngine) -> None:
    made = streams(engine, most=4)
    together: list[int] = []
    most: list[int] = []

    def act() -> None:
        together.append(1)
        most.append(len(together))
        time.sleep(0.01)
        together.pop()

    for done in [made.alone(act) for _ in range(5)]:
        done.result(10)
    assert most == [1] * 5


def test_what_waits_is_made_before_the_end(engine: FakeEngine) -> None:
    made = streams(engine, most=2)
    works = [work(name, key) for key, name in enumerate("abcde")]
    for one in works:
        made.submit(one)
    engine.go_on.set()
    made.close()
    assert all(one.done.done() for one in works)
    assert engine.open == 0


@pytest.mark.parametrize("most", [1, 4])
def test_an_actions_error_is_its_askers(most: int, engine: FakeEngine) -> None:
    engine.go_on.set()
    made = streams(engine, most)
    with pytest.raises(ZeroDivisionError):
        made.alone(lambda: 1 // 0).result(10)
    made.submit(one := work("a", 0))
    one.done.result(10)
    made.close()


def test_a_streams_error_is_told_to_all_that_run_in_it_and_the_next_one_is_another(engine: FakeEngine) -> None:
    made = streams(engine, most=1)
    works = [work("a", 0), work("a", -1), work("a", 2)]
    made.submit(works[0])
    until(lambda: len(engine.said) == 1)
    for one in works[1:]:
        made.submit(one)
    for one in works:
        with pytest.raises(ValueError, match="a broken engine"):
            one.done.result(10)
    engine.go_on.set()
    made.submit(after := work("a", 3))
    assert made_of(after) == [3]
    made.close()


def test_a_work_for_other_weights_is_refused_and_the_others_go_on(engine: FakeEngine) -> None:
    engine.go_on.set()
    made = streams(engine, most=1)
    other, good = work("a", 0, wanted=Wanted(oldest_step=4)), work("a", 1, wanted=Wanted(oldest_step=3))
    made.submit(other)
    made.submit(good)
    with pytest.raises(Refusal, match="older than the oldest_step=4"):
        other.done.result(10)
    assert made_of(good) == [1]
    made.close()


def test_a_withdrawn_work_is_made_no_more_wherever_it_is(engine: FakeEngine) -> None:
    made = streams(engine, most=1)
    running, stays, waits = work("a", 0, 1), work("a", 2), work("b", 3)
    for one in (running, stays, waits):
        made.submit(one)
    until(lambda: engine.said == [("a", [0, 1, 2])])
    made.withdraw(running)
    made.withdraw(waits)
    until(lambda: ("withdrawn", [1]) in engine.said)
    assert waits.done.cancelled()
    assert isinstance(running.done.exception(10), InterruptedError)
    engine.go_on.set()
    assert made_of(stays) == [2]
    made.withdraw(stays)
    assert engine.said[1:] == [("withdrawn", [0]), ("withdrawn", [1])]
    made.close()


def test_a_watcher_is_told_tokens_and_ends(engine: FakeEngine) -> None:
    made = streams(engine, most=1)
    seen = Seen()
    made.submit(one := work("a", 7, 8, watcher=seen))
    until(lambda: len(seen.said) >= 2)
    engine.go_on.set()
    one.done.result(10)
    assert seen.said[:2] == [("tokens", 0, [7]), ("tokens", 1, [8])]
    assert [one for one in seen.said if one[0] == "finished"] == [("finished", 0, 7), ("finished", 1, 8)]
    assert seen.weights == [WEIGHTS]
    made.close()
