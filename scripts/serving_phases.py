"""The phases of a server's work: when its engine gets requests, steps, and hands rollouts out."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """What was done for a while.

    Attributes:
        start: by ``time.perf_counter``, which on Linux all processes share.
        end: by the same.
        count: of requests, or rollouts.
    """

    start: float
    end: float
    count: int


class Schedule(NamedTuple):
    """One round of vLLM's scheduler.

    Attributes:
        start: see `Interval`.
        rows: requests that are computed.
        tokens: of them, in the first step.
        steps: of the burst; 1 for none.
    """

    start: float
    rows: int
    tokens: int
    steps: int


class EngineWatch:
    """Notes what the engine of a server does.

    Args:
        engine: started; the streams that it opens from now on are watched.
        vllm: of the engine, where it is in this process, whose scheduler is watched too.
    """

    def __init__(self, engine: Any, vllm: Any = None) -> None:
        self._opened = engine.serving_stream
        engine.serving_stream = self._watched
        self.forget()
        if vllm is not None:
            self._watch_scheduler(vllm)

    def forget(self) -> None:
        """Begins anew."""
        self.added: list[Interval] = []
        self.waits: list[Interval] = []
        self.handed: list[Interval] = []
        self.schedules: list[Schedule] = []

    def since(self, start: float) -> dict[str, Any]:
        """Returns the phases in seconds since a moment; none where no stream was watched."""
        rounds = [[round(one.start - start, 4), *one[1:]] for one in self.schedules]
        if not (self.added and self.waits and self.handed):
            return {"rounds": rounds}
        return {
            "first_added_s": self.added[0].start - start,
            "last_added_s": self.added[-1].end - start,
            "added_before_first_step": sum(one.count for one in self.added if one.end <= self.waits[0].start),
            "adding_s": _total(self.added),
            "first_step_s": self.waits[0].start - start,
            "stepping_s": _total(self.waits),
            "last_step_s": self.waits[-1].end - start,
            "handing_out_s": _total(self.handed),
            "last_handed_out_s": self.handed[-1].end - start,
            "rounds": rounds,
        }

    @contextmanager
    def _watched(self, *arguments: Any) -> Iterator[Any]:
        with self._opened(*arguments) as stream:
            yield _WatchedStream(stream, self)

    def _watch_scheduler(self, llm: Any) -> None:
        from ngrpo.rollout.vllm.private import scheduler_in_process
        from ngrpo.rollout.vllm.settings import burst_of

        scheduler = scheduler_in_process(llm)
        schedule = scheduler.schedule

        def noted(*arguments: Any, **named: Any) -> Any:
            start, made = time.perf_counter(), schedule(*arguments, **named)
            if made.total_num_scheduled_tokens:
                rows = len(made.num_scheduled_tokens)
                self.schedules.append(Schedule(start, rows, made.total_num_scheduled_tokens, burst_of(made)))
            return made

        scheduler.schedule = noted


class _WatchedStream:
    """Notes the calls of a stream."""

    def __init__(self, stream: Any, watch: EngineWatch) -> None:
        self._stream, self._watch = stream, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def add(self, requests: Sequence[Any], watched: bool = False) -> None:
        """Adds requests."""
        start = time.perf_counter()
        self._stream.add(requests, watched=watched)
        self._watch.added.append(Interval(start, time.perf_counter(), len(requests)))

    def wait(self) -> list[int]:
        """Has the engine go on."""
        start = time.perf_counter()
        finished: list[int] = self._stream.wait()
        self._watch.waits.append(Interval(start, time.perf_counter(), len(finished)))
        return finished

    def rollouts(self, numbers: Sequence[int]) -> list[Any]:
        """Returns what has finished."""
        start = time.perf_counter()
        made: list[Any] = self._stream.rollouts(numbers)
        self._watch.handed.append(Interval(start, time.perf_counter(), len(made)))
        return made


def _total(intervals: Sequence[Interval]) -> float:
    return sum(one.end - one.start for one in intervals)
