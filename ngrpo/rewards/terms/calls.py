"""Calls of rewards that the user may have written, and error messages that name the response."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from omegaconf import DictConfig

from ngrpo.config.instantiate import build
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.terms.results import WrongResult, scores_of
from ngrpo.types.scores import Score
from ngrpo.utils.given_values import shown
from ngrpo.utils.remote_error import log_traceback, origin

log = logging.getLogger(__name__)

Scoring = Callable[..., Any]
"""Takes responses and references, and whatever else it declares by name, see `declared`."""

NONE_ALONE = " on all responses together, on none alone"

_SHOWN = 80
"""Characters of a response that an error message quotes."""


def build_callable(node: DictConfig) -> Any:
    """Builds a reward, or a term.

    Raises:
        SettingError: it cannot be built, or what is built cannot be called.
    """
    made = build(node)
    if not callable(made):
        raise SettingError(
            f"_target_={node['_target_']} makes {shown(made)}, which cannot be called; give a function, or a class "
            "whose objects have __call__."
        )
    return made


def declared(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a callable declares of the named arguments that it is offered."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of a function that is not written in Python
        return {}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in offered.items() if takes_all or name in parameters}


def called(reward: Scoring, texts: Sequence[str], references: Sequence[str], offered: Mapping[str, Any]) -> Any:
    """Returns the result of a reward, which is given copies: it may change them, as in a process of its own."""
    return reward(list(texts), list(references), **deepcopy(declared(reward, offered)))


def scored(
    reward: Scoring,
    texts: Sequence[str],
    references: Sequence[str],
    problems: Sequence[int],
    questions: Sequence[str] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> list[Score]:
    """Returns a score a response.

    Args:
        reward: the reward.
        texts: responses.
        references: the reference answer of each.
        problems: the key of the problem of each.
        questions: the question of each, for rewards that declare a parameter ``questions``.
        columns: further values of each, by the names under which rewards may declare them.

    Raises:
        RunError: the reward raised, in which case the message names the first response that it also fails on alone, or
            did not return one score, or number, a response.
    """
    offered: dict[str, Sequence[Any] | None] = {"questions": questions, **(columns or {})}
    try:
        return scores_of(called(reward, texts, references, offered), texts)
    except (SettingError, RunError):
        raise
    except WrongResult as wrong:
        raise RunError(f"reward {wrong}; let it return one for each.") from wrong
    except Exception as error:
        log_traceback(log, error)
        index = _culprit(reward, texts, references, offered)
        whom = NONE_ALONE if index is None else at(index, problems[index], texts[index])
        raise RunError(f"reward raised {error!r}{origin(error)}{whom}; fix it and resume with ckpt=latest.") from error


def _culprit(
    reward: Scoring, texts: Sequence[str], references: Sequence[str], offered: Mapping[str, Sequence[Any] | None]
) -> int | None:
    for index in range(len(texts)):
        one = slice(index, index + 1)
        parts = {name: None if values is None else values[one] for name, values in offered.items()}
        try:
            called(reward, texts[one], references[one], parts)
        except Exception:
            return index
    return None


def at(index: int, problem: int, text: str) -> str:
    """Returns which response is meant."""
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return f" on response {index}, to problem {problem}: {shown!r}"
