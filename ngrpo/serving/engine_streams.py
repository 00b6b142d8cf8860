"""The streams in which an engine makes what many clients ask for, and its weights' changes between them."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, TypeVar

from ngrpo.rollout.engine import ServingStream
from ngrpo.serving.generation import Generation, Made, Weights
from ngrpo.types.rollouts import Rollout

T = TypeVar("T")

_LINGER_S = 1.0
"""Seconds for which a stream that has nothing to do stays open: opening one costs some milliseconds."""

_PAUSE_S, _GATHERING_S = 0.008, 0.5
"""Seconds without a further request after which a stream begins, and most seconds that it waits so."""

_TURNS = 4
"""Of the web server's loop, from a client that connects to its request that is asked for here."""


class Opened(NamedTuple):
    """A stream and the weights of all its rollouts."""

    stream: ServingStream
    weights: Weights


Open = Callable[[Generation], AbstractContextManager[Opened]]
"""Opens a stream for a request and those that join it."""

_Action = Callable[[], None]


class EngineStreams:
    """Calls an engine in the order of the asking; what can be one stream joins it while it runs.

    An action waits until all streams have ended, and what was asked for after it waits for the action.

    Args:
        open: see `Open`.
        refusal: returns what those who wait are told of an exception.
        most: streams at a time.
    """

    def __init__(self, open: Open, refusal: Callable[[BaseException, Generation], BaseException], most: int) -> None:
        self._opened = open
        self._refusal = refusal
        self._most = most
        self._waiting: deque[Generation | _Action] = deque()
        self._changed = threading.Condition()
        self._streams: list[_Stream] = []
        self._alone = self._closed = False
        self._web: asyncio.AbstractEventLoop | None = None

    @property
    def open(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    def submit(self, work: Generation) -> None:
        """Has rollouts made."""
        with suppress(RuntimeError):  # of another thread, which has no loop
            self._web = asyncio.get_running_loop()
        self._add(work)

    def alone(self, action: Callable[[], T]) -> "Future[T]":
        """Has something done when no rollout is being made."""
        done: Future[T] = Future()
        self._add(lambda: _settle(done, action))
        return done

    def withdraw(self, work: Generation) -> None:
        """Makes nothing more of what nobody waits for."""
        with self._changed:
            if work in self._waiting:
                self._waiting.remove(work)
                work.done.cancel()
                self._dispatch()
                return
            for stream in self._streams:
                stream.withdraw(work)
            self._changed.notify_all()

    def end(self, work: Generation, place: int) -> None:
        """Has one rollout of a watched work finish with the tokens that it has."""
        with self._changed:
            for stream in self._streams:
                stream.end(work, place)
            self._changed.notify_all()

    def close(self) -> None:
        """Waits until all that was asked for is done."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._alone))
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._waiting or self._alone or self._streams))

    def _add(self, item: "Generation | _Action") -> None:
        with self._changed:
            self._waiting.append(item)
            self._dispatch()

    def _dispatch(self) -> None:
        """Begins what may begin; those who hold the lock call it whenever something has changed."""
        while self._waiting and not self._alone:
            first = self._waiting[0]
            if isinstance(first, Generation):
                if not self._placed(first):
                    break
            elif self._streams:
                break
            else:
                self._waiting.popleft()
                self._alone = True
                threading.Thread(target=self._act, args=(first,), name="engine", daemon=True).start()
        self._changed.notify_all()

    def _placed(self, first: Generation) -> bool:
        """Gives the first work to a stream, with all that joins it and was asked for before an action."""
        stream = next((one for one in self._streams if one.takes(first)), None)
        if stream is None:
            if len(self._streams) >= self._most:
                return False
            stream = _Stream(first)
            self._streams.append(stream)
            threading.Thread(target=self._run, args=(stream,), name="engine", daemon=True).start()
        later = list[Generation]()
        while self._waiting and isinstance(self._waiting[0], Generation):
            work = self._waiting.popleft()
            assert isinstance(work, Generation)
            (stream.arrived if work.joins(first) else later).append(work)
        self._waiting.extendleft(reversed(later))
        stream.interrupt()
        return True

    def _act(self, action: _Action) -> None:
        try:
            action()
        finally:
            with self._changed:
                self._alone = False
                self._dispatch()

    def _run(self, stream: "_Stream") -> None:
        try:
            with self._opened(stream.first) as opened:
                stream.opened = opened
                while self._has_more(stream):
                    stream.go_on()
        except BaseException as error:
            with self._changed:
                stream.ending = True
            stream.fail(self._refusal(error, stream.first))
        finally:
            with self._changed:
                self._streams.remove(stream)
                self._dispatch()

    def _gather(self, stream: "_Stream") -> None:
        """Waits, where nothing runs, for those who ask at the same moment: what begins first would keep them waiting.

        On a GPU it begins with a burst of many steps, and reading requests beside an engine in this process takes both
        of them several times as long.
        """
        if stream.runs or not stream.arrived:
            return
        end, seen = time.monotonic() + _GATHERING_S, 0
        while len(stream.arrived) > seen and time.monotonic() < end:
            seen = len(stream.arrived)
            time.sleep(_PAUSE_S)
            self._let_read(end)

    def _let_read(self, end: float) -> None:
        """Waits until the web server has read what it has got: a turn of its loop is as long as that takes."""
        web = self._web
        if web is None:
            return
        for _ in range(_TURNS):
            turned = threading.Event()
            try:
                web.call_soon_threadsafe(turned.set)
            except RuntimeError:  # it is closed
                return
            turned.wait(max(0.0, end - time.monotonic()))

    def _has_more(self, stream: "_Stream") -> bool:
        """Waits for something to do; a stream without work ends when others wait, or after a moment."""
        with self._changed:
            if stream.idle:
                self._changed.wait_for(lambda: not stream.idle or self._waiting or self._closed, _LINGER_S)
        self._gather(stream)
        with self._changed:
            stream.ending = stream.idle
            stream.take()
            return not stream.ending


class _Stream:
    """A stream with the works that run in it.

    The lock of `EngineStreams` is held for what other threads use too: ``arrived``, ``gone``, ``ending``.

    Args:
        first: the work that it is opened for.

    Attributes:
        arrived: works that have not begun.
        ending: takes no more.
        opened: see `Opened`; None before.
    """

    def __init__(self, first: Generation) -> None:
        self.first = first
        self.arrived: list[Generation] = []
        self.ending = False
        self.opened: Opened | None = None
        self._gone: list[Generation] = []
        self._ends: list[tuple[Generation, int]] = []
        self._begin: list[Generation] = []
        self._drop: list[Generation] = []
        self._enough: list[tuple[Generation, int]] = []
        self._works: dict[Generation, _Parts] = {}
        self._numbers: dict[int, tuple[Generation, int]] = {}
        self._added = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.arrived or self._gone or self._ends or self._works)

    @property
    def runs(self) -> bool:
        """Whether works have begun that have not ended."""
        return bool(self._works)

    def takes(self, work: Generation) -> bool:
        """Says whether a work can be made here."""
        return not self.ending and work.joins(self.first)

    def interrupt(self) -> None:
        """Has the stream look for what has changed."""
        if self.opened is not None:
            self.opened.stream.interrupt()

    def withdraw(self, work: Generation) -> None:
        """Notes that nobody waits for a work, if it is here."""
        if work in self.arrived or work in self._begin or work in self._works:
            self._gone.append(work)
            self.interrupt()

    def end(self, work: Generation, place: int) -> None:
        """Notes that a rollout is long enough, if it is here."""
        if work in self._works:
            self._ends.append((work, place))
            self.interrupt()

    def take(self) -> None:
        """Takes over what other threads have noted."""
        self._enough, self._ends = self._ends, []
        self._begin, self.arrived = self.arrived, []
        self._drop, self._gone = self._gone, []

    def go_on(self) -> None:
        """Begins and drops works, and has the engine go on until there is something to tell."""
        assert self.opened is not None
        stream = self.opened.stream
        self._start(self.opened)
        for work in self._drop:
            self._stop(work, stream)
        ended = {self._works[work].numbers[place] for work, place in self._enough if work in self._works}
        if ended := ended & self._numbers.keys():
            stream.end(ended)
        if not stream.unfinished:
            return
        finished = stream.wait()
        for number, tokens in stream.news().items():
            work, place = self._numbers[number]
            if work.watcher is not None:
                work.watcher.tokens(place, tokens)
        if finished:
            for number, rollout in zip(finished, stream.rollouts(finished), strict=True):
                self._finish(number, rollout)

    def fail(self, error: BaseException) -> None:
        """Ends all works with an error."""
        for work in (*self._works, *self._begin, *self.arrived):
            _end(work, error)
        self._works.clear()

    def _start(self, opened: Opened) -> None:
        """Begins works, those of one moment together: an engine takes many requests at once in less time."""
        started = [work for work in self._begin if work.done.set_running_or_notify_cancel()]
        for watched in (False, True):
            works = [work for work in started if (work.watcher is not None) is watched and _fits(work, opened.weights)]
            for work in works:
                count = len(work.requests)
                self._works[work] = _Parts(range(self._added, self._added + count), [None] * count, count)
                self._numbers.update((self._added + place, (work, place)) for place in range(count))
                self._added += count
                if work.watcher is not None:
                    work.watcher.started(opened.weights)
            if works:
                opened.stream.add([request for work in works for request in work.requests], watched=watched)
        self._begin = []

    def _stop(self, work: Generation, stream: ServingStream) -> None:
        parts = self._works.pop(work, None)
        if parts is None:
            return
        stream.withdraw([number for number in parts.numbers if self._numbers.pop(number, None) is not None])
        _end(work, None)

    def _finish(self, number: int, rollout: Rollout) -> None:
        work, place = self._numbers.pop(number)
        parts = self._works[work]
        parts.rollouts[place] = rollout
        parts.left -= 1
        assert self.opened is not None
        if work.watcher is not None:
            work.watcher.finished(place, rollout)
        if not parts.left:
            del self._works[work]
            work.done.set_result(Made([one for one in parts.rollouts if one is not None], self.opened.weights))


class _Parts:
    """The rollouts of a work: their numbers in the stream, those that have finished, and how many have not."""

    def __init__(self, numbers: range, rollouts: "list[Rollout | None]", left: int) -> None:
        self.numbers = numbers
        self.rollouts = rollouts
        self.left = left


def _fits(work: Generation, weights: Weights) -> bool:
    """Says whether weights may make a work; ends it where they may not."""
    try:
        work.wanted.check(weights)
    except Exception as error:
        _end(work, error)
        return False
    return True


def _end(work: Generation, error: BaseException | None) -> None:
    """Ends a work without rollouts; None for one that nobody waits for."""
    with suppress(InvalidStateError):  # of one who has just given up
        work.done.set_exception(error or InterruptedError("nobody waits for it"))


def _settle(done: "Future[T]", action: Callable[[], T]) -> None:
    """Does something for one who waits."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(action())
    except BaseException as error:
        done.set_exception(error)
