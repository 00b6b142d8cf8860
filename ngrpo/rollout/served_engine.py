"""An engine that serves the policy: its start, the weights and tables that it gets, its sleep, and its rebuilding."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor

from ngrpo.distributed.collectives import from_first, ranks
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.null_engine import NullEngine
from ngrpo.rollout.recovery import (
    EngineFailure,
    engine_failures,
    made_with_recovery,
    quoted,
    taken_whole,
    transferred_with_recovery,
)
from ngrpo.utils.out_of_memory import out_of_memory

log = logging.getLogger(__name__)

T = TypeVar("T")


class Weights(Protocol):
    """The policy's weights, which a rebuilt engine gets again."""

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all weights by transformers name (a collective)."""

    def learned_exploration(self) -> dict[str, Tensor]:
        """Returns the strategy's learned parameters by name (a collective)."""


class ServedEngine:
    """The engine of one rank, with the weights and the bound strategy that it serves, for its tensor group.

    An engine that fails is rebuilt once, with the weights that it had, and goes on where it stood. One that is found
    broken between two calls is rebuilt by the next.

    Attributes:
        weights: what a rebuilt engine serves; None for those that it loads when it starts.
        how_to_resume: returns a clause that says how to resume, for the error of an engine that fails twice.

    Args:
        engine: makes the rollouts.
        exploration: the training strategy.
        vocabulary: the tokenizer's ids, for the strategy's tables.
        learned: the strategy's own parameters until `sync_weights` brings others; None for its initial ones.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        exploration: Exploration,
        vocabulary: Vocabulary,
        learned: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.engine = engine
        self.exploration = exploration
        self.vocabulary = vocabulary
        self.device = torch.device("cpu")
        self.weights: Weights | None = None
        self.how_to_resume: Callable[[], str] = lambda: "start again"
        self._bound: BoundExploration | None = None
        self._learned = learned
        self._finished = 0
        self._wasted = 0
        self._asleep = False
        self._lost: str | None = None

    def start(self, device: torch.device) -> None:
        """Starts the engine on this rank's device; one serves a tensor group.

        Raises:
            RunError: it does not start.
        """
        self.device = device
        if not ranks().first:
            self.engine = NullEngine()
        try:
            self.engine.start(device)
        except (SettingError, RunError):
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            raise RunError(
                f"the rollout engine could not start ({quoted(error)}); choose another model, change rollout.engine, "
                "or take another engine such as rollout=torch."
            ) from error

    def transfer(
        self,
        refresh: bool,
        finished: int | None = None,
        loaded: bool = False,
        tables: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Gives the policy's weights to the engine, which is rebuilt once if it fails (a collective).

        Args:
            refresh: see `sync_weights`, as for the next two.
            finished: training iterations behind the weights.
            loaded: they are those that the engine has loaded.
            tables: those of an interrupted run, in place of newly prepared ones; only with ``refresh``.

        Raises:
            RunError: the engine failed twice, or refuses the weights.
        """
        weights = self.weights
        assert weights is not None

        def transfer(restart: bool) -> None:
            learned = weights.learned_exploration()
            self.sync_weights(weights.named_weights(), refresh, learned, loaded, finished, restart)
            if tables is not None:
                self.restore_tables(tables)
            elif ranks().first:
                _ = self.bound  # nothing is asked of the engine later, when it may be gone

        transferred_with_recovery(transfer, self.how_to_resume)

    def sync_weights(
        self,
        tensors: Iterable[tuple[str, Tensor]],
        refresh: bool,
        learned: Mapping[str, Tensor] | None = None,
        loaded: bool = False,
        finished: int | None = None,
        restart: bool = False,
    ) -> None:
        """Transfers new weights to the engine; ``refresh`` rebuilds the strategy's tables from them.

        Args:
            tensors: the model's, by transformers name; they are walked to the end whatever the engine does.
            refresh: rebuild the tables.
            learned: the strategy's own parameters; None leaves the initial ones.
            loaded: they are exactly the weights that the engine has loaded, see `RolloutEngine.sync_loaded`.
            finished: training iterations behind these weights, which a strategy may read; None leaves the number.
            restart: build the engine anew first.

        Raises:
            EngineFailure: the engine does not take them.
        """
        with taken_whole(tensors) as rest, engine_failures():
            self._make_ready(restart)
            (self.engine.sync_loaded if loaded else self.engine.sync_weights)(rest)
        self._learned = learned
        self._finished = self._finished if finished is None else finished
        if refresh:
            self._bound = None
        elif self._bound is not None:
            self._bound = replace(self._bound, parameters=learned or {}).after(self._finished)

    def wasted_tokens(self) -> int:
        """Returns the tokens that the engine computed for rows that had ended, since this was asked last."""
        before, self._wasted = self._wasted, getattr(self.engine, "wasted_tokens", 0)
        return self._wasted - before

    def sleep(self) -> None:
        """Lets the engine free what it can until weights come; one that fails is rebuilt then."""
        try:
            self.engine.sleep()
            self._asleep = True
        except Exception as error:
            self.lose(quoted(error))

    def lose(self, reason: str) -> None:
        """Frees an engine that was found to be broken; the next weights that come, or rollouts, rebuild it."""
        self._lost = reason
        self._close_engine()

    def _make_ready(self, restart: bool) -> None:
        """Starts the engine anew, or wakes it."""
        if restart:
            if self._lost is None:
                self._close_engine()
            self._asleep, self._lost = False, None
            self.engine.start(self.device)
        self._check_lost()
        if self._asleep:
            self.engine.wake()
            self._asleep = False

    def _check_lost(self) -> None:
        if self._lost is not None:
            raise EngineFailure(self._lost)

    def _close_engine(self) -> None:
        try:
            self.engine.close()
        except Exception as error:
            log.debug("a broken engine did not close: %s", error)

    @property
    def bound(self) -> BoundExploration:
        """The training strategy with its tables, its parameters and the finished iterations of the engine's weights."""
        if self._bound is None:
            bound = bind(self.exploration, self._embedding(), self.vocabulary, self._learned)
            self._bound = bound.after(self._finished)
        return self._bound

    def _embedding(self) -> Tensor:
        """Returns the served table, [V, d].

        Raises:
            EngineFailure: the engine does not give it.
        """
        with engine_failures():
            self._check_lost()
            return self.engine.embedding()

    def restore_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Takes the tables that an interrupted run was using, instead of building them from newer weights."""
        if ranks().first:
            bound = bind(self.exploration, self._embedding(), self.vocabulary, self._learned, tables)
            self._bound = bound.after(self._finished)

    def recovered(self, make: Callable[[], T]) -> T:
        """Makes rollouts on the first rank of each tensor group, for all of it (a collective).

        Args:
            make: makes them; called again when the engine failed and was rebuilt.

        Raises:
            RunError: the engine failed twice, or something else than an engine failed.
        """
        made = made_with_recovery(lambda: make() if ranks().first else None, self._transfer_again, self.how_to_resume)
        return from_first(lambda: cast(T, made))

    def _transfer_again(self, restart: bool) -> None:
        """Transfers the weights that the engine had, after a restart if it failed; the tables stay as they are."""
        bound = self._bound
        if self.weights is not None:
            learned = self.weights.learned_exploration()
            self.sync_weights(self.weights.named_weights(), refresh=False, learned=learned, restart=restart)
        elif restart:
            with engine_failures():
                self._make_ready(restart)
        self._bound = bound
