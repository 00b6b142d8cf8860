"""The trial growth of a scheduler's trees, of made-up responses, before any model is loaded."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

import torch

from ngrpo.entrypoints.state_check import check_state
from ngrpo.entrypoints.trial_call import called_on_trial
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.empty_record import empty_record
from ngrpo.rollout.scheduling.base import Example, GroupOutcome, LearningScheduler, Scheduler
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.types.distributions import Distributions
from ngrpo.types.rollouts import Mixture, Prefix, Request, Rollout, StopReason

T = TypeVar("T")

_PROMPT = (1, 2)
_PROBLEM = 0
_LENGTHS = 24
"""Made-up responses have 1 to so many tokens, or as many as there may be."""


def try_scheduler(scheduler: Scheduler, strategy: Exploration, group_size: int, limit: int) -> None:
    """Grows a few trees; what a scheduler learns is tried on a copy of it.

    Args:
        scheduler: asks for branches.
        strategy: whose rollouts they would be.
        group_size: G.
        limit: most response tokens.

    Raises:
        SettingError: it raises, asks for what is no branch or no tree, or has a state that no checkpoint can hold.
    """
    engine = _MadeUp(strategy, min(limit, 2 * _LENGTHS))
    tried = deepcopy(scheduler) if isinstance(scheduler, LearningScheduler) else scheduler
    for sample in range(4):
        beginning = _called(lambda: tried.beginning(_PROBLEM, _PROMPT))
        if not isinstance(beginning, Prefix | None):
            raise _refused("beginning", f"a {type(beginning).__name__}; return a Prefix or None")
        roots = [Request(_PROMPT, request_key(sample, number), prefix=beginning) for number in range(group_size)]
        (tree,) = _called(lambda: grow(tried, [roots], engine.limit, engine))  # noqa: B023
        if isinstance(tried, LearningScheduler):
            example = Example(tree.leaves[0], max(tree.leaves[0].length - 1, 0))
            outcome = GroupOutcome(_PROBLEM, sample / 3, example, example)
            _called(lambda: tried.observe([outcome]))  # noqa: B023
            check_state("rollout.scheduler", _called(tried.state_dict))


class _MadeUp:
    """Makes responses of drawn lengths, without mixtures, with two tokens that are nearly as likely now and then."""

    def __init__(self, strategy: Exploration, limit: int) -> None:
        cpu = torch.device("cpu")
        vectors = torch.zeros(0, 1) if strategy.dense else None
        self.nothing = Mixture(torch.zeros(0, dtype=torch.int64), empty_record(strategy, (0,), cpu, vectors))
        self.limit = limit

    def __call__(self, requests: list[Request]) -> list[Rollout]:
        return [self._made(request) for request in requests]

    def _made(self, request: Request) -> Rollout:
        given = () if request.prefix is None else request.prefix.ids
        draw = request_key(request.key, 0)
        wanted = 1 + draw % _LENGTHS if draw % 4 else self.limit
        length = max(min(wanted, request.limit(self.limit)), len(given) + 1)
        stopped = length == wanted < self.limit
        ids = torch.tensor([*given, *range(len(given), length)])
        if request.forced_token is not None:
            ids[len(given)] = request.forced_token
        draws = torch.tensor([request_key(request.key, index) / 2**62 for index in range(length)])
        pairs = torch.stack((draws / 4, 1 - draws / 4), -1).sort(-1, descending=True).values
        return Rollout(
            key=request.key,
            prompt_ids=torch.tensor(request.prompt_ids),
            response_ids=ids,
            log_probs=-draws,
            mixture=self.nothing,
            stop_reason=StopReason.STOP if stopped else StopReason.LENGTH,
            prefix_length=len(given),
            distributions=Distributions(draws, torch.stack((ids, ids + 1), -1).int(), pairs.log()),
        )


def _called(call: Callable[[], T]) -> T:
    return called_on_trial("rollout.scheduler", call, trial="trial")


def _refused(name: str, fault: Any) -> SettingError:
    return SettingError(f"rollout.scheduler.{name} returned {fault} (a trial call).")
