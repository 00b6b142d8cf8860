"""What waits is made together where it can be one call; weights change between calls, in the order of the asking."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ngrpo.exploration.token import TokenSampling
from ngrpo.serving.engine_threads import EngineThreads
from ngrpo.serving.generation import Choice, Generation
from ngrpo.types.rollouts import Request, Sampling


def work(name: str, number: int) -> Generation:
    return Generation([Request((1,), number)], Sampling(1.0, 4, ()), Choice(name, TokenSampling()))


class Recorder:
    """Notes what is made together; holds the first call until it is told to go on."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.running = 0
        self.most = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, works: list[Generation]) -> None:
        with self._lock:
            self.calls.append([one.requests[0].key for one in works])
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.set()
        self.go_on.wait(10)
        time.sleep(0.01)
        with self._lock:
            self.running -= 1
        for one in works:
            one.done.set_result(None)  # type: ignore[arg-type]

    def note(self, number: int) -> Callable[[], int]:
        def action() -> int:
            assert self.running == 0
            self.calls.append([number])
            return number

        return action


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.go_on.set()


def test_one_call_joins_what_waits_up_to_the_next_action(recorder: Recorder) -> None:
    threads = EngineThreads(recorder, calls=1)
    threads.submit(first := work("a", 0))
    recorder.begun.wait(10)
    before = [work(name, number) for number, name in enumerate("abab", start=1)]
    for one in before:
        threads.submit(one)
    done = threads.alone(recorder.note(100))
    threads.submit(last := work("a", 5))
    recorder.go_on.set()
    for one in (first, *before, last):
        one.done.result(10)
    assert done.result(10) == 100
    assert recorder.calls == [[0], [1, 3], [2, 4], [100], [5]]
    threads.close()


def test_several_calls_run_beside_each_other(recorder: Recorder) -> None:
    threads = EngineThreads(recorder, calls=4)
    works = [work(name, number) for number, name in enumerate("abcd")]
    for one in works:
        threads.submit(one)
    deadline = time.monotonic() + 10
    while recorder.running < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert recorder.most == 4
    recorder.go_on.set()
    for one in works:
        one.done.result(10)
    threads.close()


@pytest.mark.parametrize("calls", [1, 4])
def test_an_action_is_alone_and_before_what_is_asked_later(calls: int, recorder: Recorder) -> None:
    threads = EngineThreads(recorder, calls)
    threads.submit(first := work("a", 0))
    recorder.begun.wait(10)
    done = threads.alone(recorder.note(100))
    threads.submit(last := work("a", 1))
    time.sleep(0.05)
    assert not done.done()
    assert recorder.calls == [[0]]
    recorder.go_on.set()
    for one in (first, last):
        one.done.result(10)
    assert recorder.calls == [[0], [100], [1]]
    threads.close()


def test_what_waits_is_made_before_the_end(recorder: Recorder) -> None:
    threads = EngineThreads(recorder, calls=2)
    works = [work(name, number) for number, name in enumerate("abcde")]
    for one in works:
        threads.submit(one)
    recorder.go_on.set()
    threads.close()
    assert all(one.done.done() for one in works)


@pytest.mark.parametrize("calls", [1, 4])
def test_an_actions_error_is_its_askers(calls: int, recorder: Recorder) -> None:
    recorder.go_on.set()
    threads = EngineThreads(recorder, calls)
    with pytest.raises(ZeroDivisionError):
        threads.alone(lambda: 1 // 0).result(10)
    threads.submit(one := work("a", 0))
    one.done.result(10)
    threads.close()
