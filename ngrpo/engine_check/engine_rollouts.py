"""Rollouts that an engine makes to be checked, on all ranks; where it makes none, a sentence says so."""

from collections.abc import Callable, Sequence

from ngrpo.distributed.collectives import from_first, gathered_everywhere
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.runtime.strategy_errors import StrategyError, from_strategy
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

_SHOWN = 300


def engine_rollouts(
    engine: RolloutEngine,
    asked: Sequence[Request],
    sampling: Sampling,
    bound: Callable[[], BoundExploration],
    path: str,
) -> list[Rollout]:
    """Returns the engine's rollouts, on all ranks of a tensor group (a collective).

    Args:
        engine: of this rank.
        asked: the same on every rank.
        sampling: of all of them.
        bound: the strategy; called where there is an engine.
        path: of the model, for what is said.

    Raises:
        RunError: an engine makes no rollouts; what a strategy raises is its author's and passes as it is.
    """

    def make() -> tuple[list[Rollout], str]:
        strategy = bound()
        try:
            return engine.generate(asked, sampling, strategy), ""
        except SettingError as error:
            return [], str(error)
        except Exception as error:
            if isinstance(error, StrategyError) or from_strategy(error, strategy.strategy):
                raise
            return [], _unable(path, error)

    rollouts, own = from_first(make)
    if said := [sentence for sentence in gathered_everywhere(own) if sentence]:
        raise RunError(said[0], everywhere=True)
    return rollouts


def _unable(path: str, error: Exception) -> str:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
    return (
        f"the rollout engine cannot run model.path={path} ({reason}); choose another model, or another engine such as "
        "rollout=torch."
    )
