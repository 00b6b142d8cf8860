"""Recovery from faults of an engine: it is rebuilt once, and all ranks learn of it."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.strategy_errors import StrategyError, from_strategy
from ngrpo.rollout.engine import RolloutStream
from ngrpo.types.rollouts import Request, Rollout

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHOWN = 300
"""Characters of an engine's error that are quoted."""


class EngineFailure(Exception):
    """An engine could not do its work; the message says why, as a clause."""


@contextmanager
def engine_failures(strategy: Exploration | None = None) -> Iterator[None]:
    """Makes an `EngineFailure` of an exception that comes out of an engine.

    Args:
        strategy: the one that the engine runs. An exception of its own code passes as it is, as does a refusal: a
            rebuilt engine would only raise it again.

    Raises:
        EngineFailure: the engine failed.
    """
    try:
        yield
    except (SettingError, RunError, StrategyError, EngineFailure):
        raise
    except Exception as error:
        if strategy is not None and from_strategy(error, strategy):
            raise
        raise EngineFailure(quoted(error)) from error


class StreamFailures:
    """A stream whose own exceptions become an `EngineFailure`; what is done between its calls is no engine's fault.

    Args:
        stream: of an engine.
        strategy: see `engine_failures`.
    """

    def __init__(self, stream: RolloutStream, strategy: Exploration) -> None:
        self._stream = stream
        self._strategy = strategy

    def add(self, requests: Sequence[Request]) -> None:
        """Adds requests."""
        with engine_failures(self._strategy):
            self._stream.add(requests)

    def wait(self) -> list[int]:
        """Waits until requests have finished."""
        with engine_failures(self._strategy):
            return self._stream.wait()

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        """Returns the rollouts of finished requests."""
        with engine_failures(self._strategy):
            return self._stream.rollouts(numbers)


@contextmanager
def stream_failures(opened: AbstractContextManager[RolloutStream], strategy: Exploration) -> Iterator[StreamFailures]:
    """Opens a stream that tells its own exceptions from those of its user (see `StreamFailures`)."""
    with ExitStack() as stack:
        with engine_failures(strategy):
            stream = stack.enter_context(opened)
        yield StreamFailures(stream, strategy)


@contextmanager
def taken_whole(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """Gives an iterator, and walks what is left of it when the block fails.

    Each tensor of a sharded model is a collective: a rank whose engine failed must not leave the others alone with it.
    """
    rest = iter(items)
    try:
        yield rest
    except Exception:
        deque(rest, maxlen=0)
        raise


def quoted(error: BaseException) -> str:
    """Returns an error of an engine as a clause."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}"


def made_with_recovery(make: Callable[[], T], transfer: Callable[[bool], None], how_to_resume: Callable[[], str]) -> T:
    """Makes rollouts; an engine that fails is rebuilt once, and makes them again.

    A collective: every rank comes here equally often, and leaves with its rollouts or with the same error. The keys of
    the requests are the same the second time, and so are the rollouts.

    Args:
        make: makes this rank's rollouts and scores them.
        transfer: transfers the current weights to the engines, after building this rank's anew if it is told so;
            called on all ranks, since the weights are spread over them.
        how_to_resume: returns a clause that says how to resume the run.

    Raises:
        RunError: an engine failed twice, or something else than an engine failed.
    """

    def again(first: _Attempt[T]) -> T:
        transfer(first.engine_failed)
        return make() if first.engine_failed else first.result()

    return _recovered(make, again, _GENERATION, how_to_resume)


def transferred_with_recovery(transfer: Callable[[bool], None], how_to_resume: Callable[[], str]) -> None:
    """Transfers weights to the engines; one that fails is rebuilt once, and all get them again (a collective).

    Args:
        transfer: as that of `made_with_recovery`.
        how_to_resume: returns a clause that says how to resume the run.

    Raises:
        RunError: an engine failed twice, or something else than an engine failed.
    """
    _recovered(lambda: transfer(False), lambda first: transfer(first.engine_failed), _TRANSFER, how_to_resume)


class _Work(NamedTuple):
    """What an engine was doing, for what is said of its failure."""

    again: str
    remedy: str


_GENERATION = _Work(
    "makes the batch again", "lower rollout.engine.max_batch_size, or take another engine with rollout=torch"
)
_TRANSFER = _Work("gets the weights again", "take another engine with rollout=torch")


@dataclass(frozen=True)
class _Attempt(Generic[T]):
    """A result, or the message of the error that prevented it: the error itself would keep the engine alive."""

    made: T | None = None
    error: str | None = None
    engine_failed: bool = False

    def result(self) -> T:
        assert self.error is None
        return cast(T, self.made)


def _recovered(
    first: Callable[[], T], again: Callable[[_Attempt[T]], T], work: _Work, how_to_resume: Callable[[], str]
) -> T:
    attempt = _attempt(first)
    failure = _engine_failure_anywhere(attempt)
    if failure is None:
        return attempt.result()

    log.warning("the rollout engine failed (%s); it is rebuilt and %s", failure, work.again)
    second = _attempt(lambda: again(attempt))
    failure = _engine_failure_anywhere(second)
    if failure is None:
        return second.result()
    raise RunError(
        f"the rollout engine failed again after it was rebuilt ({failure}); {work.remedy}; {how_to_resume()}.",
        everywhere=True,
    )


def _attempt(make: Callable[[], T]) -> _Attempt[T]:
    try:
        return _Attempt(made=make())
    except EngineFailure as failure:
        return _Attempt(error=str(failure), engine_failed=True)
    except RunError as error:
        return _Attempt(error=str(error))


def _engine_failure_anywhere(own: _Attempt[T]) -> str | None:
    """Returns why an engine failed on the first rank where one did, None if none did (a collective).

    Raises:
        RunError: on some rank it was not the engine.
    """
    everyone = gathered_everywhere((own.error, own.engine_failed))
    errors = [(error, of_engine) for error, of_engine in everyone if error is not None]
    for error, of_engine in errors:
        if not of_engine:
            raise RunError(error, everywhere=True)
    return errors[0][0] if errors else None
