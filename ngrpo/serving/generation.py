"""The work of an engine: rollouts that a request asks for, and what decides them."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from ngrpo.exploration.base import Exploration
from ngrpo.serving.refusals import other_weights
from ngrpo.types.rollouts import Request, Rollout, Sampling


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


@dataclass(frozen=True, eq=False)
class Generation:
    """Rollouts to make.

    Attributes:
        requests: checked.
        sampling: their settings.
        choice: their strategy.
        wanted: the weights that may make them.
        done: gets the rollouts, or why there are none.
    """

    requests: list[Request]
    sampling: Sampling
    choice: Choice
    wanted: Wanted = field(default_factory=Wanted)
    done: "Future[Made]" = field(default_factory=Future)

    def joins(self, other: "Generation") -> bool:
        """Says whether both can be one call of an engine."""
        return self.sampling == other.sampling and self.choice == other.choice
