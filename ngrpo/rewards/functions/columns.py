"""The columns by which a reward function is called."""

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any

from ngrpo.types.problems import Problem

COMPLETIONS = "completions"
"""The parameter that tells a reward function from a reward of responses and references."""


def columns_of(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """Returns what is offered of N problems beside completions and answer.

    ``prompts`` are messages where the prompt is conversational, the question elsewhere; ``questions`` are text. Further
    columns are the fields that the data keeps, None where a row has none.
    """
    names = dict.fromkeys(name for problem in problems for name in problem.columns)
    return {
        "prompts": [
            problem.question if problem.messages is None else [dict(message) for message in problem.messages]
            for problem in problems
        ],
        "questions": [problem.question for problem in problems],
        **{name: [problem.columns.get(name) for problem in problems] for name in names},
    }


def parameters_of_call(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters by which a function, or an object of a class, is called; none where unknown."""
    called = target.__call__ if inspect.isclass(target) else target
    try:
        parameters = dict(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return {}
    if inspect.isclass(target):
        parameters.pop("self", None)
    return parameters


def takes_columns(target: Callable[..., Any]) -> bool:
    """Says whether a function, or an object of a class, is a reward function.

    That is one with a parameter ``completions``, or with ``**columns`` and no place for responses and references.
    """
    parameters = parameters_of_call(target)
    kinds = [parameter.kind for parameter in parameters.values()]
    places = sum(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    takes_pairs = places >= 2 or Parameter.VAR_POSITIONAL in kinds
    return COMPLETIONS in parameters or (Parameter.VAR_KEYWORD in kinds and not takes_pairs)
