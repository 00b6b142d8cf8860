"""The protocol of rollout engines."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.types.rollouts import Request, Rollout, Sampling

Report = Callable[[int, int], None]
"""Called now and then during a call with the number of finished rollouts and of generated tokens."""

NOT_STARTED = "the engine is not running; call start first"
"""What an engine says that is asked for something before `start`, or after `close`."""


class RolloutStream(Protocol):
    """Requests of one strategy that are added while others run."""

    def add(self, requests: Sequence[Request]) -> None:
        """Adds requests, which are numbered from 0 in the order in which they come."""

    def wait(self) -> list[int]:
        """Waits until requests have finished; returns their numbers, none when all have."""

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        """Returns the rollouts of finished requests, once each."""


@runtime_checkable
class StreamingEngine(Protocol):
    """An engine that takes further requests while it runs others."""

    def stream(
        self, sampling: Sampling, exploration: BoundExploration, at_once: int, report: Report | None = None
    ) -> AbstractContextManager[RolloutStream]:
        """Opens a stream; the rollout of a request is the one that `RolloutEngine.generate` makes.

        Args:
            sampling: settings of all requests.
            exploration: strategy of all requests, which all explore, and ask for no tokens.
            at_once: about how many are unfinished at a time.
            report: see `RolloutEngine.generate`.
        """


class ServingStream(RolloutStream, Protocol):
    """A stream for requests of many askers: some hang up, and some want tokens as they come.

    One thread uses it; `interrupt` is for the others.
    """

    @property
    def unfinished(self) -> int:
        """Requests that were added and have not finished."""

    def add(self, requests: Sequence[Request], watched: bool = False) -> None:
        """Adds requests; the tokens of watched ones are told as they come."""

    def wait(self) -> list[int]:
        """Waits until requests have finished or have news, or somebody interrupts; returns those that have finished."""

    def news(self) -> dict[int, list[int]]:
        """Returns the tokens of watched requests that have come since the last call, of those that go on."""

    def withdraw(self, numbers: Collection[int]) -> None:
        """Makes nothing more of requests; of those that have finished it changes nothing."""

    def end(self, numbers: Collection[int]) -> None:
        """Has watched requests finish with the tokens that they have, those that were told at least."""

    def interrupt(self) -> None:
        """Ends the `wait` of another thread, or its next one."""


@runtime_checkable
class ServingEngine(Protocol):
    """An engine for a server.

    Attributes:
        most_streams: open at a time.
    """

    most_streams: int

    def serving_stream(
        self, sampling: Sampling, exploration: BoundExploration, plain: bool, steered: bool = False
    ) -> AbstractContextManager[ServingStream]:
        """Opens a stream; the rollout of a request is the one that `RolloutEngine.generate` makes.

        Args:
            sampling: settings of all requests, of which each may have a smaller ``max_new_tokens``.
            exploration: strategy of all requests.
            plain: some may be sampled plainly (`Request.explore`).
            steered: some may ask for tokens (`Request.steered`).
        """


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine with figures of its own for the log."""

    def figures(self) -> dict[str, float]:
        """Returns them by the names of metrics, as they are when rollouts have been made."""


@runtime_checkable
class InstalledEngine(Protocol):
    """An engine of a package that need not be installed, except where it is to start."""

    def check_installed(self) -> None:
        """Raises a SettingError where the package is missing, or of a version that cannot be used."""


class RolloutEngine(Protocol):
    """Token ids in, token ids out; text is never re-encoded.

    Attributes:
        several_ranks: whether each of several training processes can run one of its own.
        concurrent: whether `generate` may run in a thread of its own while this process trains.
        tf32: whether float32 numbers may be multiplied in TF32, whatever PyTorch's setting is.
        checked_as: name and version of an engine that is compared with PyTorch before it is used
            (`ngrpo.engine_check`); "" for one that is PyTorch itself, or is not to be compared.
    """

    several_ranks: bool
    concurrent: bool
    tf32: bool
    checked_as: str

    @property
    def dtype(self) -> torch.dtype:
        """That of the served weights and of the engine's arithmetic; may be asked before `start`."""

    def start(self, device: torch.device) -> None:
        """Loads the model onto ``device``; called before everything else, and again after `close`."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        """Makes one rollout a request, in the order of the requests.

        The rollout of a request depends on its prompt, its key, the weights and the settings only: not on the
        other requests, their order or the engine's batch size. ``report`` is called whenever rollouts finish.
        """

    def check_load(self, strategy: Exploration, requests: int, max_new_tokens: int) -> None:
        """Raises a SettingError for a call whose records the engine has no room for; may be asked before `start`."""

    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Takes new weights by their transformers names; tied weights come once."""

    def sync_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Takes exactly the weights that `start` has loaded.

        Raises:
            RunError: a served weight changed by it.
        """

    def embedding(self) -> Tensor:
        """Returns the served input embedding table, [V, d]."""

    def sleep(self) -> None:
        """Frees what it can: caches, and weights too; `wake` and then `sync_weights` must come before `generate`."""

    def wake(self) -> None:
        """Makes room for the weights that the next `sync_weights` brings."""

    def close(self) -> None:
        """Frees everything, as far as a broken engine can; `start` and then `sync_weights` bring it back."""
