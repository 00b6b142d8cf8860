"""Faults while rollouts are made: what is tried again, and what all ranks must know."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.errors import RunError

log = logging.getLogger(__name__)

T = TypeVar("T")


class EngineFailure(Exception):
    """An engine could not make rollouts; the message says why, as a clause."""


def recovered(
    make: Callable[[], T], rebuild: Callable[[bool], None], how_to_resume: str = "resume with ckpt=latest"
) -> T:
    """Makes rollouts; an engine that fails is rebuilt once, and makes them again.

    A collective: every rank comes here equally often, and leaves with its rollouts or with the same error. The keys of
    the requests are the same the second time, and so are the rollouts.

    Args:
        make: makes this rank's rollouts and scores them.
        rebuild: hands the current weights to the engines, after building this rank's anew if it is told so; called on
            all ranks, since the weights are spread over them.
        how_to_resume: a clause that says how to resume the run.

    Raises:
        RunError: an engine failed twice, or something else than an engine failed.
    """
    first = _attempt(make)
    reasons = _agreed(first)
    if not reasons:
        return first.result()
    log.warning("the rollout engine failed (%s); it is rebuilt and makes the batch again", reasons[0])
    rebuild(first.engine_failed)
    second = _attempt(make) if first.engine_failed else first
    if reasons := _agreed(second):
        raise RunError(
            f"the rollout engine failed again after it was rebuilt ({reasons[0]}); lower rollout.engine.max_batch_size,"
            f" or take another engine with rollout=torch; {how_to_resume}.",
            everywhere=True,
        )
    return second.result()


@dataclass(frozen=True)
class _Attempt(Generic[T]):
    """What was made, or why nothing was made."""

    made: tuple[T] | None = None
    reason: str | None = None
    engine_failed: bool = False

    def result(self) -> T:
        assert self.made is not None
        return self.made[0]


def _attempt(make: Callable[[], T]) -> _Attempt[T]:
    try:
        return _Attempt(made=(make(),))
    except EngineFailure as failure:
        return _Attempt(reason=str(failure), engine_failed=True)
    except RunError as error:
        return _Attempt(reason=str(error))


def _agreed(own: _Attempt[T]) -> list[str]:
    """Returns why engines failed on any rank (a collective).

    Raises:
        RunError: on some rank it was not the engine.
    """
    everyone = gathered_everywhere((own.reason, own.engine_failed))
    others = [reason for reason, of_engine in everyone if reason is not None and not of_engine]
    if others:
        raise RunError(others[0], everywhere=True)
    return [reason for reason, _ in everyone if reason is not None]
