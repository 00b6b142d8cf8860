"""The trial call of rewards, with made-up responses to problems of the data, before anything is generated."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from inspect import Parameter
from itertools import islice
from typing import Any

from omegaconf import DictConfig

from ngrpo.config.allowlist import ALLOWED, below
from ngrpo.config.instantiate import target_of
from ngrpo.entrypoints.components import Components
from ngrpo.entrypoints.made_up_responses import VARIETY, completions_of, repeated, responses_to
from ngrpo.entrypoints.state_check import check_state
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.functions.columns import (
    COMPLETIONS,
    columns_of,
    hides_parameters,
    is_called_itself,
    parameters_of_call,
    places_of,
    takes_columns,
)
from ngrpo.rewards.isolation.isolated import CallFailed, IsolatedObject
from ngrpo.rewards.math import MathReward
from ngrpo.rewards.terms.base import Responses, Stateful
from ngrpo.rewards.terms.calls import called
from ngrpo.rewards.terms.results import WrongResult, numbers, refuse_nan
from ngrpo.types.problems import Problem, Prompt
from ngrpo.utils.remote_error import log_traceback, origin

log = logging.getLogger(__name__)

_ROWS_LOOKED_AT = 50
_GIVEN = (COMPLETIONS, "answer")
_NO_GROUP = "process group has not been initialized"
"""What PyTorch says of a collective where the processes have not met yet."""

_UNKNOWN = Problem(0, "What is 1 + 1?", "2")


def try_rewards(
    config: DictConfig,
    parts: Components,
    datamodule: Any,
    benchmarks: Mapping[str, Sequence[Prompt]],
    tokenizer: Any,
) -> None:
    """Calls a reward of the user's own, and each reward term that is a reward function or the user's own, once.

    The mathematics reward starts a process and judges an answer that is right.

    Args:
        config: checked.
        parts: what it builds.
        datamodule: of the run.
        benchmarks: prompts by name, which the reward scores too.
        tokenizer: the model's.

    Raises:
        SettingError: answers cannot be checked; or one asks for columns that are not there, raises, takes too long,
            does not return one number for each response, or has a state that no checkpoint can hold.
    """
    trained = _problems_of(datamodule)
    unkept = _unkept_fields(datamodule)
    places = {"data": trained} | _problems_by_place(benchmarks)
    _try_reward(_Tried("reward", config.reward, parts.reward, unkept), places)
    for term in parts.terms:
        node = config.reward_terms[term.name].term
        tried = _Tried(f"reward_terms.{term.name}", node, term.function, unkept)
        if not tried.takes_columns and tried.own:
            continue
        # A term of responses may count on whole groups.
        size = VARIETY if tried.takes_columns else parts.rollout.group_size
        responses = responses_to(trained, size, tokenizer, parts.source.stop_ids(tokenizer))
        _try_term(tried, responses, several_processes=parts.processes > 1)


def try_reward(node: DictConfig, reward: Any, benchmarks: Mapping[str, Sequence[Prompt]]) -> None:
    """The same of the reward of an evaluation.

    Raises:
        SettingError: see `try_rewards`.
    """
    _try_reward(_Tried("reward", node, reward), _problems_by_place(benchmarks))


@dataclass(frozen=True)
class _Tried:
    """A reward or a term.

    Attributes:
        setting: where it is configured.
        node: its ``_target_`` node.
        made: what was built of it.
        unkept: fields of the training data that are not kept.
    """

    setting: str
    node: DictConfig
    made: Any
    unkept: Sequence[str] = ()

    @property
    def takes_columns(self) -> bool:
        """Whether it is a reward function."""
        return takes_columns(target_of(self.node))

    @property
    def own(self) -> bool:
        """Whether it is the package's."""
        return below(self.node["_target_"], ALLOWED)

    @property
    def remedy(self) -> str:
        """What to do about an exception, as a clause."""
        if not hides_parameters(target_of(self.node)):
            return "fix it"
        return (
            f"its parameters are (*args, **kwargs), so that all columns ({COMPLETIONS}, answer, ...) were passed by "
            "name: read them by name, or write @functools.wraps in its decorator"
        )


def _try_reward(tried: _Tried, places: Mapping[str, Sequence[Problem]]) -> None:
    function = tried.takes_columns
    if isinstance(tried.made, MathReward):
        tried.made.try_out()
    if not function and tried.own:
        return
    _check_places(tried)
    given = _GIVEN if function else ()
    for where, problems in places.items():
        _check_columns(tried, where, [*given, *columns_of(problems)], positional=0 if function else 2)
    chosen = next(iter(places.values()))
    asked, texts = repeated(chosen, VARIETY), completions_of(chosen, VARIETY)
    with _refusing(tried, len(texts)):
        refuse_nan(_undisturbed(tried, lambda reward: _reward_call(reward, asked, texts)), len(texts))


def _try_term(tried: _Tried, responses: Responses, several_processes: bool) -> None:
    count = len(responses)
    if tried.takes_columns:
        _check_columns(tried, "data", [*_GIVEN, *columns_of(responses.problems)], positional=0)
    with _refusing(tried, count):
        try:
            result = _undisturbed(tried, lambda term: term(responses.copied()))
        except (RuntimeError, ValueError) as error:
            if several_processes and _NO_GROUP in str(error):
                return  # a collective of its own, for which the other processes are not there yet
            raise
        if tried.takes_columns:
            refuse_nan(result, count)
        else:
            numbers(result, count)  # it may exclude responses of just this kind, by NaN


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


def _check_places(tried: _Tried) -> None:
    """Refuses a reward that is no reward function, and has no places for responses and references."""
    target = target_of(tried.node)
    parameters = parameters_of_call(target)
    is_known = parameters and (inspect.isclass(target) or is_called_itself(target, tried.node))
    if tried.takes_columns or not is_known:
        return
    kinds = [parameter.kind for parameter in parameters.values()]
    places = [name for name in places_of(parameters) if name not in tried.node]
    if len(places) >= 2 or Parameter.VAR_POSITIONAL in kinds:
        return
    raise SettingError(
        f"{tried.setting}._target_={tried.node['_target_']} takes {', '.join(places) or 'nothing'}, and a reward "
        f"without a parameter {COMPLETIONS} is called with responses and references; call its parameter {COMPLETIONS},"
        " which is the list of the responses, or give it two."
    )


@contextmanager
def _refusing(tried: _Tried, count: int) -> Iterator[None]:
    """Turns whatever a trial call of somebody's code raises, or is found to have returned, into a `SettingError`."""
    setting = tried.setting
    asked = f"on a trial call with {count} made-up responses"
    try:
        yield
    except WrongResult as wrong:
        raise SettingError(f"{setting} {wrong} {asked}; let it return one number for each.") from wrong
    except CallFailed as failure:
        raise SettingError(f"{setting} {failure} {asked}; {failure.remedy}.") from failure
    except (SettingError, RunError):
        raise
    except SystemExit as end:
        raise SettingError(f"{setting} ended the program ({end!r}) {asked}; let it return or raise.") from end
    except Exception as error:
        log_traceback(log, error)
        raise SettingError(f"{setting} raised {error!r}{origin(error)} {asked}; {tried.remedy}.") from error


def _undisturbed(tried: _Tried, call: Callable[[Any], Any]) -> Any:
    """Calls a reward or a term, and gives it back the state that it had; in a process of its own, all that it had.

    One that runs in this process and is not `Stateful` keeps what the call has changed in it.
    """
    made = tried.made
    isolated = getattr(made, "isolated", None)
    if isolated is not None:
        state = isolated.state
        result = call(isolated)
        check_state(tried.setting, isolated.state)
        isolated.restore(state)
        return result
    if not isinstance(made, Stateful):
        return call(made)
    check_state(tried.setting, made.state_dict())
    state = deepcopy(made.state_dict())
    result = call(made)
    check_state(tried.setting, made.state_dict())
    made.load_state_dict(state)
    return result


def _reward_call(function: Any, problems: list[Problem], texts: list[str]) -> Any:
    offered = {COMPLETIONS: texts, **columns_of(problems)}
    answers = [problem.answer for problem in problems]
    # In its own process a reward picks out itself what it declares.
    if isinstance(function, IsolatedObject):
        return function(texts, answers, **offered)
    return called(function, texts, answers, offered)
