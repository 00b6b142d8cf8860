"""The columns by which a reward function is called."""

import inspect
from collections.abc import Callable, Mapping, Sequence
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

    That is one with a parameter ``completions``, or with ``**columns`` and no places named for responses and
    references: what a decorator makes of it, ``(*args, **kwargs)``, is called by names too.
    """
    parameters = parameters_of_call(target)
    collects = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    return COMPLETIONS in parameters or (collects and len(places_of(parameters)) < 2)


def places_of(parameters: Mapping[str, Parameter]) -> list[str]:
    """Returns the names of the parameters that an argument can be passed to by its position."""
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters.items() if parameter.kind in by_position]


def hides_parameters(target: Callable[..., Any]) -> bool:
    """Says whether nothing is known of what a function, or an object of a class, takes: ``(*args, **kwargs)``."""
    kinds = [parameter.kind for parameter in parameters_of_call(target).values()]
    return kinds == [Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD]


def is_called_itself(target: Callable[..., Any], settings: Mapping[Any, Any]) -> bool:
    """Says whether a target is a reward or a term, which is called; no function that makes one, nor a class.

    A function makes one if the settings leave none of its parameters open, and it has no ``*args`` for responses.
    """
    if inspect.isclass(target):
        return False
    return takes_columns(target) or any(
        (parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD and name not in settings)
        for name, parameter in parameters_of_call(target).items()
    )
