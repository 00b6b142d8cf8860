"""The threads in which an engine works for any number of clients, and alone when its weights change."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ngrpo.serving.generation import Generation

T = TypeVar("T")

Make = Callable[[list[Generation]], None]
"""Makes rollouts that can be one call, and gives them to those who wait; raises nothing."""


class EngineThreads(Protocol):
    """Where an engine's work is done."""

    def submit(self, work: Generation) -> None:
        """Has rollouts made."""

    def alone(self, action: Callable[[], T]) -> "Future[T]":
        """Has something done when no rollout is being made, before those that are asked for later."""

    def close(self) -> None:
        """Ends the threads when what was begun is done."""


class OneThread:
    """One thread, for an engine that is called by one: what waits and can be one call is made together.

    Args:
        make: see `Make`.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._waiting: deque[Generation | Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, work: Generation) -> None:
        """Has rollouts made (see `EngineThreads`)."""
        self._add(work)

    def alone(self, action: Callable[[], T]) -> "Future[T]":
        """Has something done alone (see `EngineThreads`)."""
        done: Future[T] = Future()
        self._add(lambda: _settle(done, action))
        return done

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _add(self, item: "Generation | Callable[[], None]") -> None:
        with self._changed:
            self._waiting.append(item)
            self._changed.notify()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, list):
                self._make(item)
            else:
                item()

    def _next(self) -> "list[Generation] | Callable[[], None] | None":
        """Returns an action, or all that joins the first work and was asked for before the next action."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            first = self._waiting.popleft()
            if not isinstance(first, Generation):
                return first
            joined, later = [first], list[Generation]()
            while self._waiting and isinstance(self._waiting[0], Generation):
                work = self._waiting.popleft()
                assert isinstance(work, Generation)
                (joined if work.joins(first) else later).append(work)
            self._waiting.extendleft(reversed(later))
            return joined


class ManyThreads:
    """A thread for each request, for an engine that runs those of many callers together.

    Args:
        make: see `Make`.
        most: threads at a time.
    """

    def __init__(self, make: Make, most: int = 256) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(max_workers=most, thread_name_prefix="engine")
        self._changed = threading.Condition()
        self._running = 0
        self._want_alone = 0

    def submit(self, work: Generation) -> None:
        """Has rollouts made (see `EngineThreads`)."""
        self._pool.submit(self._shared, work)

    def alone(self, action: Callable[[], T]) -> "Future[T]":
        """Has something done alone (see `EngineThreads`)."""
        done: Future[T] = Future()
        with self._changed:
            self._want_alone += 1
        threading.Thread(target=self._exclusive, args=(done, action), name="engine-alone", daemon=True).start()
        return done

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _shared(self, work: Generation) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._want_alone == 0)
            self._running += 1
        with self._leaving():
            self._make([work])

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _exclusive(self, done: "Future[Any]", action: Callable[[], Any]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)
            self._running += 1
        with self._leaving():
            _settle(done, action)
            with self._changed:
                self._want_alone -= 1


def _settle(done: "Future[T]", action: Callable[[], T]) -> None:
    """Does something for one who waits."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(action())
    except BaseException as error:
        done.set_exception(error)
