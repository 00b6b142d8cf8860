"""The strategies that other frameworks can train with: those that they score by token, and replay by records alone."""

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration

_REMEDY = "use one that is scored by token, such as NeighborMixing or SoftThinking, or this project's own trainer."


def check_scored_by_token(strategy: Exploration, framework: str) -> None:
    """Refuses a strategy whose steps are scored otherwise than by their tokens' log-probs under the full softmax.

    Args:
        strategy: to be trained with.
        framework: that trains, by name.

    Raises:
        SettingError: it cannot be used.
    """
    name = type(strategy).__name__
    if not strategy.scores_tokens:
        raise SettingError(f"exploration={name} is scored by a density, and {framework} scores tokens; {_REMEDY}")
    if strategy.learning_rates():
        raise SettingError(f"exploration={name} learns parameters, which {framework} does not train; {_REMEDY}")
    if strategy.truncates:
        raise SettingError(f"exploration={name} truncates the softmax, which {framework} scores in full; {_REMEDY}")


def check_replayed_by_records(strategy: Exploration, framework: str) -> None:
    """Refuses a strategy whose inputs are not what its records alone say.

    Args:
        strategy: to be trained with.
        framework: that trains, and is given records and no strategy.

    Raises:
        SettingError: it cannot be used.
    """
    name = type(strategy).__name__
    if type(strategy).inputs is not Exploration.inputs:
        raise SettingError(
            f"exploration={name} makes its inputs in its own way, which {framework} is not told; {_REMEDY}"
        )
    if strategy.detached or strategy.plain_reference:
        raise SettingError(
            f"exploration={name} is replayed otherwise than its records say, which {framework} is not told; {_REMEDY}"
        )
