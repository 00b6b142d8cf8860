"""The threads in which an engine works for any number of clients, and alone when its weights change."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ngrpo.serving.generation import Generation

T = TypeVar("T")

Make = Callable[[list[Generation]], None]
"""Makes rollouts that can be one call, and gives them to those who wait; raises nothing."""

_Action = Callable[[], None]


class EngineThreads:
    """Calls an engine in the order of the asking; what waits and can be one call is made together.

    An action waits until no call runs, and what was asked for after it waits for the action.

    Args:
        make: see `Make`.
        calls: most calls at a time: 1 for an engine that is called by one thread.
    """

    def __init__(self, make: Make, calls: int) -> None:
        self._make = make
        self._waiting: deque[Generation | _Action] = deque()
        self._changed = threading.Condition()
        self._running = 0
        self._alone = False
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name="engine", daemon=True) for _ in range(calls)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Generation) -> None:
        """Has rollouts made."""
        self._add(work)

    def alone(self, action: Callable[[], T]) -> "Future[T]":
        """Has something done when no rollout is being made."""
        done: Future[T] = Future()
        self._add(lambda: _settle(done, action))
        return done

    def close(self) -> None:
        """Ends the threads when all that was asked for is done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _add(self, item: "Generation | _Action") -> None:
        with self._changed:
            self._waiting.append(item)
            self._changed.notify_all()

    def _run(self) -> None:
        while (item := self._next_item()) is not None:
            try:
                if isinstance(item, list):
                    self._make(item)
                else:
                    item()
            finally:
                with self._changed:
                    self._running -= 1
                    self._alone = False
                    self._changed.notify_all()

    def _next_item(self) -> "list[Generation] | _Action | None":
        """Waits for what may begin: an action, or all that joins the first work and was asked for before an action."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_begin() or (self._closed and not self._waiting))
            if not self._waiting:
                return None
            self._running += 1
            first = self._waiting.popleft()
            if not isinstance(first, Generation):
                self._alone = True
                return first
            joined, later = [first], list[Generation]()
            while self._waiting and isinstance(self._waiting[0], Generation):
                work = self._waiting.popleft()
                assert isinstance(work, Generation)
                (joined if work.joins(first) else later).append(work)
            self._waiting.extendleft(reversed(later))
            return joined

    def _may_begin(self) -> bool:
        if not self._waiting or self._alone:
            return False
        return isinstance(self._waiting[0], Generation) or self._running == 0


def _settle(done: "Future[T]", action: Callable[[], T]) -> None:
    """Does something for one who waits."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(action())
    except BaseException as error:
        done.set_exception(error)
