"""Refusals of rollouts that lack what was asked of their engine; one of a user's own may not give all."""

from collections.abc import Sequence

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.types.rollouts import Request, Rollout


def check_supports(rollouts: Sequence[Rollout], engine: RolloutEngine, exploration: Exploration) -> None:
    """Refuses rollouts of truncated sampling that do not say what was kept.

    Args:
        rollouts: that were made.
        engine: has made them.
        exploration: decided their tokens.

    Raises:
        SettingError: one has no support.
    """
    if exploration.support and any(rollout.support is None for rollout in rollouts):
        raise SettingError(
            f"rollout.engine={type(engine).__name__} returns no Rollout.support, on which the tokens of "
            f"exploration={type(exploration).__name__} must be scored; let it keep what the steps return, or "
            "choose an exploration that does not truncate."
        )


def check_steered(
    asked: Sequence[Request], rollouts: Sequence[Rollout], engine: RolloutEngine, scheduler: Scheduler
) -> None:
    """Refuses rollouts without what the scheduler reads, or that began otherwise than it asked for.

    Args:
        asked: requests of a scheduler.
        rollouts: of each.
        engine: has made them.
        scheduler: asked for them.

    Raises:
        SettingError: one has no distributions that the scheduler reads, or another first token.
    """
    for request, rollout in zip(asked, rollouts, strict=True):
        if scheduler.reads_distributions and rollout.distributions is None:
            raise _not_for_trees(
                engine,
                scheduler,
                "returns no Rollout.distributions, which",
                "reads; let it record them where Sampling.distributions asks for it",
            )
        forced = request.forced_token
        if forced is not None and forced != int(rollout.response_ids[request.given]):
            raise _not_for_trees(
                engine,
                scheduler,
                "draws tokens where Request.forced_token, by which",
                "forks, names one; let it take that one",
            )


def _not_for_trees(engine: RolloutEngine, scheduler: Scheduler, fault: str, remedy: str) -> SettingError:
    return SettingError(
        f"rollout.engine={type(engine).__name__} {fault} rollout.scheduler={type(scheduler).__name__} {remedy}, or set "
        "rollout/scheduler=independent."
    )
