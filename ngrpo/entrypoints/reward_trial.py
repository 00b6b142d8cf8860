"""The trial call of reward functions, with made-up responses to problems of the data, before anything is generated."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from inspect import Parameter
from itertools import cycle, islice
from typing import Any

from omegaconf import DictConfig

from ngrpo.config.instantiate import target_of
from ngrpo.entrypoints.components import Components
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.functions.columns import COMPLETIONS, columns_of, parameters_of_call, takes_columns
from ngrpo.rewards.isolation.isolated import LIMIT, CallFailed
from ngrpo.rewards.terms.base import Responses
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
    """Calls the reward and the reward terms of a training once, as far as they are reward functions.

    Args:
        config: checked.
        parts: what it builds.
        datamodule: of the run.
        benchmarks: prompts by name, which the reward scores too.

    Raises:
        SettingError: a function asks for columns that are not there, raises, takes too long, or does not return one
            number for each response.
    """
    trained = _problems_of(datamodule)
    _try("reward", config.reward, parts.reward, {"data": trained} | _problems_by_place(benchmarks), _reward_call)
    for term in parts.terms:
        node = config.reward_terms[term.name].term
        _try(f"reward_terms.{term.name}", node, term.function, {"data": trained}, _term_call)


def try_reward(node: DictConfig, reward: Any, benchmarks: Mapping[str, Sequence[Prompt]]) -> None:
    """The same of the reward of an evaluation.

    Raises:
        SettingError: see `try_rewards`.
    """
    _try("reward", node, reward, _problems_by_place(benchmarks), _reward_call)


Call = Callable[[Any, list[Problem], list[str]], Any]


def _try(setting: str, node: DictConfig, made: Any, places: Mapping[str, Sequence[Problem]], call: Call) -> None:
    if not takes_columns(target_of(node)):
        return
    for where, problems in places.items():
        _check_columns(setting, node, where, columns_of(problems))
    problems = [problem for problem in next(iter(places.values())) for _ in _MADE_UP]
    texts = [text.replace("%s", problem.answer) for problem, text in zip(problems, cycle(_MADE_UP), strict=False)]
    _check_result(setting, lambda: _undisturbed(made, lambda function: call(function, problems, texts)), len(texts))


def _problems_by_place(benchmarks: Mapping[str, Sequence[Prompt]]) -> dict[str, list[Problem]]:
    return {f"benchmark.{name}": [one.problem for one in prompts[:2]] for name, prompts in benchmarks.items()}


def _problems_of(datamodule: Any) -> list[Problem]:
    """Returns two problems of the data; of a data module that is not this package's, made-up ones."""
    sources = getattr(datamodule, "sources", {})
    rows = (row for one in sources.values() for row in islice(one.source.rows(), _ROWS_LOOKED_AT))
    return list(islice((row for row in rows if isinstance(row, Problem)), 2)) or [_UNKNOWN, _UNKNOWN]


def _check_columns(setting: str, node: DictConfig, where: str, columns: Mapping[str, Any]) -> None:
    offered = [COMPLETIONS, "answer", *columns]
    missing = [
        name
        for name, parameter in parameters_of_call(target_of(node)).items()
        if parameter.default is Parameter.empty
        and parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        and name not in offered
        and name not in node
    ]
    if missing:
        raise SettingError(
            f"{setting}._target_={node['_target_']} asks for {', '.join(missing)}, and the rows of {where} have "
            f"{', '.join(offered)}; add fields of the data to {where}.keep_fields, or a setting as +{setting}.<name>."
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


def _undisturbed(made: Any, call: Callable[[Any], Any]) -> Any:
    """Calls a function, and gives it back the state that it had."""
    isolated = getattr(made, "isolated", None)
    if isolated is None:
        state = deepcopy(made.state_dict())
        result = call(made)
        made.load_state_dict(state)
        return result
    state = isolated.state
    result = call(isolated)
    if state:
        isolated.restore(state)
    return result


def _reward_call(function: Any, problems: list[Problem], texts: list[str]) -> Any:
    return function(texts, [problem.answer for problem in problems], **columns_of(problems))


def _term_call(function: Any, problems: list[Problem], texts: list[str]) -> Any:
    scores = [Score(0.0, False, None, Verdict.WRONG)] * len(texts)
    return function(Responses(problems, [], texts, scores))
