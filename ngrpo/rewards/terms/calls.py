"""Calls of rewards that the user may have written, and error messages that name the response."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngrpo.errors import RunError
from ngrpo.types.scores import Score
from ngrpo.utils.remote_error import origin

Scoring = Callable[..., list[Score]]
"""Takes responses and references, and whatever else it declares by name, see `declared`."""

NONE_ALONE = " on all responses together, on none alone"

_SHOWN = 80
"""Characters of a response that an error message quotes."""


def declared(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a callable declares of the named arguments that it is offered."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of a function that is not written in Python
        return {}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in offered.items() if takes_all or name in parameters}


def scored(
    reward: Scoring,
    texts: Sequence[str],
    references: Sequence[str],
    problems: Sequence[int],
    questions: Sequence[str] | None = None,
) -> list[Score]:
    """Returns a score a response.

    Args:
        reward: the reward.
        texts: responses.
        references: the reference answer of each.
        problems: the key of the problem of each.
        questions: the question of each, for rewards that declare a parameter ``questions``.

    Raises:
        RunError: the reward raised, in which case the message names the first response that it also fails on alone, or
            did not return one score a response.
    """
    try:
        scores = reward(texts, references, **declared(reward, {"questions": questions}))
    except RunError:
        raise
    except Exception as error:
        index = _culprit(reward, texts, references, questions)
        whom = NONE_ALONE if index is None else at(index, problems[index], texts[index])
        raise RunError(f"reward raised {error!r}{origin(error)}{whom}; fix it and resume with ckpt=latest.") from error
    if len(scores) != len(texts):
        raise RunError(f"reward returned {len(scores)} scores for {len(texts)} responses; let it return one for each.")
    return scores


def _culprit(
    reward: Scoring, texts: Sequence[str], references: Sequence[str], questions: Sequence[str] | None
) -> int | None:
    for index in range(len(texts)):
        one = slice(index, index + 1)
        asked = None if questions is None else questions[one]
        try:
            reward(texts[one], references[one], **declared(reward, {"questions": asked}))
        except Exception:
            return index
    return None


def at(index: int, problem: int, text: str) -> str:
    """Returns which response is meant."""
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return f" on response {index}, to problem {problem}: {shown!r}"
