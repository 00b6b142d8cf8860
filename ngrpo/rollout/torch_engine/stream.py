"""The requests of one call on the torch engine: they wait for rows, run, and come back as rollouts."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.rollout.admission import admission_order
from ngrpo.rollout.engine import Report
from ngrpo.rollout.torch_engine.batch_state import BatchState, Progress
from ngrpo.rollout.torch_engine.burst import Steps, StepShape, round_up
from ngrpo.rollout.torch_engine.kv_cache import SlotCache
from ngrpo.types.rollouts import Request, Rollout, Sampling

_ADMIT_SHARE = 4
"""Waiting requests enter when a quarter of the slots is free: prefills stay large and groups stay together."""


@dataclass(frozen=True)
class Operations:
    """What the engine does for a stream.

    Attributes:
        cache: returns a cache of so many slots and positions, the last one if it has them.
        steps: returns the steps of a batch in a cache.
        admit: prefills the next requests in so many rows, and makes their first step.
        most_rows: at once.
        burst: most decode steps between two looks of the host.
    """

    cache: Callable[[int, int], SlotCache]
    steps: Callable[[BatchState, SlotCache, BoundExploration], Steps]
    admit: Callable[[BatchState, SlotCache, "deque[tuple[int, Request]]", int, BoundExploration], None]
    most_rows: int
    burst: int


class TorchStream:
    """Takes requests while others run, and returns their rollouts (see `ngrpo.rollout.engine.ServingStream`).

    One stream of an engine is open at a time.

    Args:
        operations: the engine's.
        sampling: settings of all requests.
        exploration: strategy of all requests.
        table: the embedding, for device, dtype and width.
        all_explore: no request is sampled plainly.
        grows: more requests, and longer ones, may come while others run: room is made for more than those that came.
        report: is called when rollouts finish.
        steered: some requests may ask for tokens, see `Request.steered`.

    Attributes:
        unfinished: requests that were added and have not finished.
        wasted: tokens that rows computed after their end.
    """

    def __init__(
        self,
        operations: Operations,
        sampling: Sampling,
        exploration: BoundExploration,
        table: Tensor,
        all_explore: bool,
        grows: bool,
        report: Report | None = None,
        steered: bool = False,
    ) -> None:
        self._operations = operations
        self._sampling = sampling
        self._exploration = exploration
        self._grows = grows
        self._report = report
        end_ids = torch.tensor(exploration.end_ids, dtype=torch.int64, device=table.device)
        self._batch = BatchState(0, exploration.strategy, sampling, end_ids, table, all_explore, steered)
        self._slots = 0
        self._cache: SlotCache | None = None
        self._steps: Steps | None = None
        self._requests: dict[int, Request] = {}
        self._waiting: deque[tuple[int, Request]] = deque()
        self._progress = Progress([], 0, 0)
        self._collected: dict[int, Rollout] = {}
        self._seen: dict[int, int] = {}
        self._news: dict[int, list[int]] = {}
        self._withdrawn: set[int] = set()
        self._added = self._finished = self._tokens = 0
        self.wasted = 0

    @property
    def unfinished(self) -> int:
        """Requests that were added and have not finished."""
        return len(self._requests)

    def add(self, requests: Sequence[Request], watched: bool = False) -> None:
        """Adds requests, which are numbered from 0 in the order in which they come."""
        numbers = [self._added + place for place in admission_order(requests, self._sampling.max_new_tokens)]
        first, self._added = self._added, self._added + len(requests)
        self._requests.update(enumerate(requests, first))
        self._waiting.extend((number, self._requests[number]) for number in numbers)
        if watched:
            self._seen.update((first + place, request.given) for place, request in enumerate(requests))

    def wait(self) -> list[int]:
        """Makes a step or a burst of them; returns the numbers of what has finished."""
        finished: list[int] = []
        if self._batch.active:
            finished += self._decode()
        room = self._room()
        if self._waiting and room >= min(len(self._waiting), max(1, self._slots // _ADMIT_SHARE), self._slots):
            assert self._cache is not None
            self._operations.admit(self._batch, self._cache, self._waiting, room, self._exploration)
            finished += self._retire()
        return finished

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        """Returns the rollouts of finished requests, once each."""
        return [self._collected.pop(number) for number in numbers]

    def news(self) -> dict[int, list[int]]:
        """Returns the tokens of watched requests that have come since, of those that go on."""
        news, self._news = self._news, {}
        return news

    def withdraw(self, numbers: Collection[int]) -> None:
        """Makes nothing more of requests; those that have finished stay so."""
        gone = {number for number in numbers if number in self._requests}
        waiting = {number for number, _ in self._waiting} & gone
        self._waiting = deque(one for one in self._waiting if one[0] not in waiting)
        for number in gone:
            self._seen.pop(number, None)
        for number in waiting:
            del self._requests[number]
        self._withdrawn |= gone - waiting
        self.end(gone - waiting)

    def end(self, numbers: Collection[int]) -> None:
        """Has requests finish with the tokens that they have."""
        rows = [row for row, number in enumerate(self._running()) if number in numbers]
        if rows:
            self._batch.end(rows)
            self._progress = self._batch.look()

    def interrupt(self) -> None:
        """Does nothing: `wait` is short."""

    def _decode(self) -> list[int]:
        assert self._steps is not None
        assert self._cache is not None
        if not self._progress.left:  # all rows were withdrawn
            return self._retire()
        count = min(self._operations.burst, self._progress.left)
        length = min(self._progress.longest + count - 1, self._cache.length)
        self._steps.run(StepShape(self._batch.active, length), count)
        self.wasted += count * self._batch.active
        return self._retire()

    def _room(self) -> int:
        """Returns the free rows, after more were made if there may be more; the cache fits all that waits."""
        if not self._waiting:
            return 0
        longest = max(len(r.prompt_ids) + r.limit(self._sampling.max_new_tokens) for _, r in self._waiting)
        rows = min(self._operations.most_rows, len(self._requests))
        if self._grows:
            rows, longest = min(self._operations.most_rows, round_up(rows)), round_up(longest)
        if rows > self._slots or self._cache is None or not self._cache.fits(rows, longest):
            self._grow(max(rows, self._slots), max(longest, self._cache.length if self._cache else 0))
        return self._slots - self._batch.active

    def _grow(self, rows: int, length: int) -> None:
        """Makes room; captured steps are of the old memory."""
        old, self._cache = self._cache, None
        cache = self._operations.cache(rows, length)
        if old is not None and cache is not old:
            active = slice(0, self._batch.active)
            cache.data[:, :, active, :, : old.length] = old.data[:, :, active]
        if rows > self._slots:
            self._batch.grow(rows)
            self._slots = rows
        self._cache, self._steps = cache, self._operations.steps(self._batch, cache, self._exploration)

    def _running(self) -> list[int]:
        return self._batch.request[: self._batch.active].tolist()

    def _retire(self) -> list[int]:
        """Looks at the rows, and removes the finished rollouts; returns the numbers of those that are wanted."""
        self._progress = self._batch.look()
        ended = self._progress.finished
        if not ended:
            self._note_news()
            return []
        numbers = self._batch.request[ended].tolist()
        requests = [self._requests.pop(number) for number in numbers]
        rollouts = dict(zip(numbers, self._batch.take(ended, requests), strict=True))
        assert self._cache is not None
        self._cache.move(*self._batch.drop(ended))
        self.wasted -= sum(rollout.generated - 1 for rollout in rollouts.values())
        self._finished += len(rollouts)
        self._tokens += sum(rollout.generated for rollout in rollouts.values())
        self._tell()
        wanted = [number for number in numbers if number not in self._withdrawn]
        self._withdrawn.difference_update(numbers)
        for number in wanted:
            self._seen.pop(number, None)
            self._collected[number] = rollouts[number]
        self._note_news()
        return wanted

    def _note_news(self) -> None:
        """Notes the new tokens of watched rows that go on."""
        if not self._seen:
            return
        rows = {row: self._seen[number] for row, number in enumerate(self._running()) if number in self._seen}
        if not rows:
            return
        running = self._running()
        for row, tokens in self._batch.new_tokens(rows).items():
            if tokens:
                self._news.setdefault(running[row], []).extend(tokens)
                self._seen[running[row]] += len(tokens)

    def _tell(self) -> None:
        if self._report is None:
            return
        given = sum(self._requests[number].given for number in self._running())
        generated = int(self._batch.emitted[: self._batch.active].sum()) - given
        self._report(self._finished, self._tokens + generated)
