"""Recovery from faults of an engine: it is rebuilt once, and all ranks learn of it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.errors import RunError

log = logging.getLogger(__name__)

T = TypeVar("T")


class EngineFailure(Exception):
    """An engine could not make rollouts; the message says why, as a clause."""


def with_recovery(make: Callable[[], T], rebuild: Callable[[bool], None], how_to_resume: Callable[[], str]) -> T:
    """Makes rollouts; an engine that fails is rebuilt once, and makes them again.

    A collective: every rank comes here equally often, and leaves with its rollouts or with the same error. The keys of
    the requests are the same the second time, and so are the rollouts.

    Args:
        make: makes this rank's rollouts and scores them.
        rebuild: transfers the current weights to the engines, after building this rank's anew if it is told so; called
            on all ranks, since the weights are spread over them.
        how_to_resume: returns a clause that says how to resume the run.

    Raises:
        RunError: an engine failed twice, or something else than an engine failed.
    """
    attempt = _attempt(make)
    failure = _engine_failure_anywhere(attempt)
    if failure is None:
        return attempt.result()

    log.warning("the rollout engine failed (%s); it is rebuilt and makes the batch again", failure)
    rebuild(attempt.engine_failed)

    if attempt.engine_failed:
        attempt = _attempt(make)
    failure = _engine_failure_anywhere(attempt)
    if failure is None:
        return attempt.result()
    raise RunError(
        f"the rollout engine failed again after it was rebuilt ({failure}); lower rollout.engine.max_batch_size,"
        f" or take another engine with rollout=torch; {how_to_resume()}.",
        everywhere=True,
    )


@dataclass(frozen=True)
class _Attempt(Generic[T]):
    """A result, or the message of the error that prevented it: the error itself would keep the engine alive."""

    made: T | None = None
    error: str | None = None
    engine_failed: bool = False

    def result(self) -> T:
        assert self.error is None
        return cast(T, self.made)


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
