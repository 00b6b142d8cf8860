"""The next batch's rollouts, made in a thread while the present batch trains."""

import io
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from ngrpo.distributed.collectives import gathered
from ngrpo.errors import RunError
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.rollout.serialization import deserialize_experience, serialize_experience
from ngrpo.types.experience import Experience


class Prefetch:
    """At most one batch in the making and one that is ready, both by the number of their iteration.

    The engine is called from the thread only between `start` and `wait`, and by nobody else then. What runs there must
    not talk to other ranks: their main threads are in collectives of their own.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "prefetch")
        self._running: tuple[int, Future[Experience]] | None = None
        self._ready: tuple[int, Experience] | None = None

    def start(self, iteration: int, make: Callable[[], Experience]) -> None:
        """Starts to make a batch."""
        self._running = iteration, self._pool.submit(make)

    def wait(self, how_to_resume: Callable[[], str]) -> None:
        """Waits until the batch is ready.

        Args:
            how_to_resume: returns a clause that says how to resume the run.

        Raises:
            RunError: the engine failed; nobody else may rebuild it while the ranks are in an update.
        """
        if self._running is None:
            return
        (iteration, future), self._running = self._running, None
        try:
            self._ready = iteration, future.result()
        except EngineFailure as failure:
            raise RunError(
                f"the rollout engine failed while it prefetched the next batch ({failure}); set rollout.ahead=0, with "
                f"which a failed engine is rebuilt; {how_to_resume()}."
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
