"""The work of an engine: rollouts that a request asks for, and what decides them."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from ngrpo.exploration.base import Exploration
from ngrpo.serving.refusals import other_weights
from ngrpo.types.rollouts import Request, Rollout, Sampling

_LEAST_ROOM = 256
"""Response tokens for which a stream has room at least; beyond that powers of two, so that there are few streams."""


@dataclass(frozen=True)
class Weights:
    """The weights that are served.

    Attributes:
        version: 16 hexadecimal digits that name them.
        step: their number, which grows; 0 for those of the model's folder.
        since: when they came, in seconds since 1970.
    """

    version: str
    step: int
    since: float


@dataclass(frozen=True)
class Wanted:
    """The weights that a request is for.

    Attributes:
        version: these and no others; None for any.
        oldest_step: none of a smaller number.
    """

    version: str | None = None
    oldest_step: int = 0

    def check(self, served: Weights) -> None:
        """Refuses others.

        Raises:
            Refusal: they are served.
        """
        if self.version is not None and self.version != served.version:
            raise other_weights(
                f"the weights are {served.version} of step {served.step}, and {self.version} were asked for; send "
                "those first."
            )
        if served.step < self.oldest_step:
            raise other_weights(
                f"the weights are of step {served.step}, older than the oldest_step={self.oldest_step} that was asked "
                "for; send newer ones, or ask for older."
            )


@dataclass(frozen=True)
class Choice:
    """The strategy of a request with what it is bound to.

    Attributes:
        name: the strategy as it was asked for, in one form: equal names are equal strategies.
        strategy: the strategy.
        tables: name of the tensors to use as its tables; None for those of the served weights.
        parameters: name of the tensors that it has learned; None for those beside the model.
        progress: finished training iterations.
    """

    name: str
    strategy: Exploration = field(compare=False)
    tables: str | None = None
    parameters: str | None = None
    progress: int = 0


@dataclass(frozen=True)
class Made:
    """Rollouts of a request, in its order, and the weights that made all of them."""

    rollouts: list[Rollout]
    weights: Weights


class Watcher(Protocol):
    """Is told of rollouts while they are made, in the engine's thread: it must neither wait nor fail."""

    def started(self, weights: Weights) -> None:
        """Is told the weights that make all of them, before anything else."""

    def tokens(self, place: int, ids: Sequence[int]) -> None:
        """Is told the next tokens of a rollout that goes on."""

    def finished(self, place: int, rollout: Rollout) -> None:
        """Is told a rollout that has finished, with all its tokens."""


@dataclass(frozen=True, eq=False)
class Generation:
    """Rollouts to make.

    Attributes:
        requests: checked.
        sampling: their settings.
        choice: their strategy.
        wanted: the weights that may make them.
        watcher: is told of them while they are made; None for nobody.
        done: gets the rollouts, or why there are none.
    """

    requests: list[Request]
    sampling: Sampling
    choice: Choice
    wanted: Wanted = field(default_factory=Wanted)
    watcher: Watcher | None = None
    done: "Future[Made]" = field(default_factory=Future)

    @property
    def plain(self) -> bool:
        """Whether some are sampled plainly."""
        return not all(request.explore for request in self.requests)

    @property
    def steered(self) -> bool:
        """Whether some ask for tokens."""
        return any(request.steered for request in self.requests)

    def joins(self, other: "Generation") -> bool:
        """Says whether both can be in one stream of an engine."""
        alike = self.plain == other.plain and self.steered == other.steered
        return alike and self.sampling == other.sampling and self.choice == other.choice

    def with_room(self, most: int) -> "Generation":
        """Returns the same work for a stream that others with longer or shorter responses can join.

        Args:
            most: response tokens of a stream.
        """
        asked = self.sampling.max_new_tokens
        room = min(most, max(_LEAST_ROOM, 1 << (asked - 1).bit_length()))
        requests = [replace(request, max_new_tokens=request.limit(asked)) for request in self.requests]
        return replace(self, requests=requests, sampling=replace(self.sampling, max_new_tokens=max(room, asked)))
