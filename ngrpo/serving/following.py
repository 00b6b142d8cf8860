"""The news of rollouts on their way from the engine's thread to a coroutine."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ngrpo.serving.generation import Generation, Weights
from ngrpo.types.rollouts import Rollout


class News(NamedTuple):
    """What is new of one rollout.

    Attributes:
        place: of its request in the work.
        ids: tokens that came since.
        rollout: with all tokens, when it has finished; None before.
    """

    place: int
    ids: list[int]
    rollout: Rollout | None


class Following:
    """Is told news by the engine (see `Watcher`), and hands them to one coroutine.

    What a slow coroutine has not taken is put together, so that no more waits than a work's tokens.

    Args:
        loop: the coroutine's.

    Attributes:
        weights: that make the rollouts; None as long as none is made. Others may be served when a slow client is told.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.weights: Weights | None = None
        self._loop = loop
        self._lock = threading.Lock()
        self._tokens: dict[int, list[int]] = {}
        self._finished: dict[int, Rollout] = {}
        self._told = False
        self._event = asyncio.Event()

    def started(self, weights: Weights) -> None:
        """Is told the weights that make the rollouts."""
        self.weights = weights

    def tokens(self, place: int, ids: Sequence[int]) -> None:
        """Is told the next tokens of a rollout that goes on."""
        with self._lock:
            self._tokens.setdefault(place, []).extend(ids)
        self.wake()

    def finished(self, place: int, rollout: Rollout) -> None:
        """Is told a rollout that has finished."""
        with self._lock:
            self._finished[place] = rollout
        self.wake()

    def wake(self) -> None:
        """Has the coroutine look."""
        with self._lock:
            if self._told:
                return
            self._told = True
        with suppress(RuntimeError):  # of a loop that has ended
            self._loop.call_soon_threadsafe(self._event.set)

    async def next(self, work: Generation) -> list[News]:
        """Waits for news of the work that is followed.

        Raises:
            Exception: the reason why there are no rollouts.
        """
        while not (news := self._take()):
            # Looked at before waiting, each time: an end that comes while other news waits wakes nobody by itself.
            if work.done.cancelled():
                raise InterruptedError("nobody waits for it")
            if work.done.done() and (error := work.done.exception()) is not None:
                raise error
            await self._event.wait()
            self._event.clear()
        return news

    def _take(self) -> list[News]:
        with self._lock:
            tokens, self._tokens = self._tokens, {}
            finished, self._finished = self._finished, {}
            self._told = False
        return [
            News(place, tokens.get(place, []), finished.get(place)) for place in sorted(tokens.keys() | finished.keys())
        ]
