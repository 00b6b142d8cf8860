"""The next batch's rollouts, made in a thread while the present batch trains."""

import io
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from ngrpo.distributed.collectives import gathered
from ngrpo.errors import RunError
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.types.experience import Experience
from ngrpo.types.serialization import deserialize_experience, serialize_experience
from ngrpo.utils.current_gpu import on_current_gpu

_MOST_FAILURES = 2
"""Of the engine, in a row: one that never survives a batch beside an update is not rebuilt for each."""


class Prefetch:
    """At most one batch in the making and one that is ready, both by the number of their iteration.

    The engine is called from the thread only between `start` and `wait`, and by nobody else then. What runs there must
    not talk to other ranks: their main threads are in collectives of their own.

    Args:
        how_to_resume: returns a clause that says how to resume the run.
    """

    def __init__(self, how_to_resume: Callable[[], str]) -> None:
        self._how_to_resume = how_to_resume
        self._failures = 0
        self._pool = ThreadPoolExecutor(1, "prefetch")
        self._running: tuple[int, Future[Experience]] | None = None
        self._ready: tuple[int, Experience] | None = None

    def start(self, iteration: int, make: Callable[[], Experience]) -> None:
        """Starts to make a batch."""
        self._running = iteration, self._pool.submit(on_current_gpu(make))

    def wait(self) -> None:
        """Waits until the batch is ready.

        Raises:
            EngineFailure: the engine failed; the batch is to be made when its iteration comes.
            RunError: it did so twice in a row.
        """
        if self._running is None:
            return
        (iteration, future), self._running = self._running, None
        try:
            self._ready = iteration, future.result()
            self._failures = 0
        except EngineFailure as failure:
            self._failures += 1
            if self._failures < _MOST_FAILURES:
                raise
            raise RunError(
                f"the rollout engine failed again while it prefetched the next batch ({failure}); lower "
                f"rollout.engine.max_batch_size, or take another engine with rollout=torch; {self._how_to_resume()}."
            ) from failure

    def take(self, iteration: int) -> Experience | None:
        """Returns the batch of this iteration, None if it was not prefetched."""
        if self._ready is None or self._ready[0] != iteration:
            return None
        (_, experience), self._ready = self._ready, None
        return experience

    def state_dict(self) -> list[Tensor]:
        """Returns the ready batches of all data ranks as bytes (a collective); call it between `wait` and `start`."""
        everyone = gathered(_as_bytes(self._ready))
        return [torch.frombuffer(bytearray(own), dtype=torch.uint8) for own in everyone]

    def load_state_dict(self, everyone: Sequence[Tensor], rank: int) -> None:
        """Takes a data rank's batch back, if batches were prefetched at all."""
        if everyone:
            self._ready = _from_bytes(everyone[rank].numpy().tobytes())


def _as_bytes(ready: tuple[int, Experience] | None) -> bytes:
    file = io.BytesIO()
    torch.save(None if ready is None else (ready[0], serialize_experience(ready[1])), file)
    return file.getvalue()


def _from_bytes(content: bytes) -> tuple[int, Experience] | None:
    """Reads without running what a checkpoint might hold."""
    ready = torch.load(io.BytesIO(content), weights_only=True)
    return None if ready is None else (ready[0], deserialize_experience(ready[1]))
