"""The trial call of rewards, with made-up responses to problems of the data, before anything is generated."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from inspect import Parameter
from itertools import cycle, islice
from typing import Any

from omegaconf import DictConfig

from ngrpo.config.allowlist import ALLOWED, below
from ngrpo.config.instantiate import target_of
from ngrpo.entrypoints.components import Components
from ngrpo.entrypoints.state_check import check_state
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.functions.columns import COMPLETIONS, columns_of, parameters_of_call, takes_columns
from ngrpo.rewards.isolation.isolated import LIMIT, CallFailed, IsolatedObject
from ngrpo.rewards.terms.base import Responses, Stateful
from ngrpo.rewards.terms.calls import declared
from ngrpo.rewards.terms.results import WrongResult, refuse_nan
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.scores import Score, Verdict
from ngrpo.utils.remote_error import log_traceback, origin

log = logging.getLogger(__name__)

_ROWS_LOOKED_AT = 50
_MADE_UP = ("I do not know.", r"The answer is \boxed{%s}.")
_UNKNOWN = Problem(0, "What is 1 + 1?", "2")


def try_rewards(
    config: DictConfig, parts: Components, datamodule: Any, benchmarks: Mapping[str, Sequence[Prompt]]
) -> None:
    """Calls a reward of the user's own, and each reward term that is a reward function, once.

    Args:
        config: checked.
        parts: what it builds.
        datamodule: of the run.
        benchmarks: prompts by name, which the reward scores too.

    Raises:
        SettingError: one asks for columns that are not there, raises, takes too long, does not return one number for
            each response, or has a state that no checkpoint can hold.
    """
    trained = _problems_of(datamodule)
    unkept = _unkept_fields(datamodule)
    places = {"data": trained} | _problems_by_place(benchmarks)
    _try(_Tried("reward", config.reward, parts.reward, _reward_call, unkept), places)
    for term in parts.terms:
        node = config.reward_terms[term.name].term
        _try(_Tried(f"reward_terms.{term.name}", node, term.function, _term_call, unkept), {"data": trained})


def try_reward(node: DictConfig, reward: Any, benchmarks: Mapping[str, Sequence[Prompt]]) -> None:
    """The same of the reward of an evaluation.

    Raises:
        SettingError: see `try_rewards`.
    """
    _try(_Tried("reward", node, reward, _reward_call), _problems_by_place(benchmarks))


@dataclass(frozen=True)
class _Tried:
    """A reward or a term, and how it is called.

    Attributes:
        setting: where it is configured.
        node: its ``_target_`` node.
        made: what was built of it.
        call: calls it on problems and responses.
        unkept: fields of the training data that are not kept.
    """

    setting: str
    node: DictConfig
    made: Any
    call: Callable[[Any, list[Problem], list[str]], Any]
    unkept: Sequence[str] = ()


def _try(tried: _Tried, places: Mapping[str, Sequence[Problem]]) -> None:
    function = takes_columns(target_of(tried.node))
    if not function and (tried.call is _term_call or below(tried.node["_target_"], ALLOWED)):
        return  # a term of responses gets tokens, which nobody can make up
    given = (COMPLETIONS, "answer") if function else ()
    for where, problems in places.items():
        _check_columns(tried, where, [*given, *columns_of(problems)], positional=0 if function else 2)
    problems = [problem for problem in next(iter(places.values())) for _ in _MADE_UP]
    texts = [text.replace("%s", problem.answer) for problem, text in zip(problems, cycle(_MADE_UP), strict=False)]
    _check_result(tried.setting, lambda: _undisturbed(tried, problems, texts), len(texts))


def _problems_by_place(benchmarks: Mapping[str, Sequence[Prompt]]) -> dict[str, list[Problem]]:
    return {f"benchmark.{name}": [one.problem for one in prompts[:2]] for name, prompts in benchmarks.items()}


def _problems_of(datamodule: Any) -> list[Problem]:
    """Returns two problems of the data; of a data module that is not this package's, made-up ones."""
    sources = getattr(datamodule, "sources", {})
    rows = (row for one in sources.values() for row in islice(one.source.rows(), _ROWS_LOOKED_AT))
    return list(islice((row for row in rows if isinstance(row, Problem)), 2)) or [_UNKNOWN, _UNKNOWN]


def _unkept_fields(datamodule: Any) -> list[str]:
    """Returns the names of the fields of the training data that rewards do not get."""
    sources = [one.source for one in getattr(datamodule, "sources", {}).values()]
    return list(dict.fromkeys(name for source in sources for name in getattr(source, "unkept", ())))


def _check_columns(tried: _Tried, where: str, offered: Sequence[str], positional: int) -> None:
    """Refuses parameters that get nothing, and those that take what is passed by name by their position only.

    Args:
        tried: what is called.
        where: the problems are from.
        offered: names.
        positional: number of leading parameters that are passed by position.
    """
    setting, target = tried.setting, tried.node["_target_"]
    asked = list(parameters_of_call(target_of(tried.node)).items())[positional:]
    by_position = [name for name, parameter in asked if parameter.kind is Parameter.POSITIONAL_ONLY]
    if by_position:
        raise SettingError(
            f"{setting}._target_={target} takes {', '.join(by_position)} by position only, and columns are passed by "
            "name; take the / out of its parameters."
        )
    missing = [
        name
        for name, parameter in asked
        if parameter.default is Parameter.empty
        and parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        and name not in offered
        and name not in tried.node
    ]
    if missing:
        kept = f" (there are {', '.join(tried.unkept)})" if tried.unkept and where == "data" else ""
        raise SettingError(
            f"{setting}._target_={target} asks for {', '.join(missing)}, and the rows of {where} have "
            f"{', '.join(offered)}; add fields of the data to {where}.keep_fields{kept}, or a setting as "
            f"+{setting}.<name>."
        )


def _check_result(setting: str, call: Callable[[], Any], count: int) -> None:
    asked = f"on a trial call with {count} made-up responses"
    try:
        refuse_nan(call(), count)
    except WrongResult as wrong:
        raise SettingError(f"{setting} {wrong} {asked}; let it return one number for each.") from wrong
    except CallFailed as failure:
        raise SettingError(f"{setting} {failure} {asked}; fix it, or raise {LIMIT}.") from failure
    except (SettingError, RunError):
        raise
    except Exception as error:
        log_traceback(log, error)
        raise SettingError(f"{setting} raised {error!r}{origin(error)} {asked}; fix it.") from error


def _undisturbed(tried: _Tried, problems: list[Problem], texts: list[str]) -> Any:
    """Calls a function, and gives it back the state that it had."""
    made = tried.made
    isolated = getattr(made, "isolated", None)
    if isolated is not None:
        state = isolated.state
        result = tried.call(isolated, problems, texts)
        check_state(tried.setting, isolated.state)
        if state:
            isolated.restore(state)
        return result
    if not isinstance(made, Stateful):
        return tried.call(made, problems, texts)
    state = deepcopy(made.state_dict())
    result = tried.call(made, problems, texts)
    check_state(tried.setting, made.state_dict())
    made.load_state_dict(state)
    return result


def _reward_call(function: Any, problems: list[Problem], texts: list[str]) -> Any:
    offered = {COMPLETIONS: texts, **columns_of(problems)}
    # In its own process a reward picks out itself what it declares.
    passed = offered if isinstance(function, IsolatedObject) else declared(function, offered)
    return function(texts, [problem.answer for problem in problems], **passed)


def _term_call(function: Any, problems: list[Problem], texts: list[str]) -> Any:
    scores = [Score(0.0, False, None, Verdict.WRONG)] * len(texts)
    return function(Responses(problems, [], texts, scores, texts))
