"""Generation speed and effect of mixing on the untrained model, measured until the deadline and continued later."""

import time
from collections.abc import Callable, Mapping

import torch

from ngrpo.exploration.random import request_key
from ngrpo.study.effect import effect
from ngrpo.study.results import Effect, Speed
from ngrpo.study.scheduler import Deadline
from ngrpo.study.untrained import Strategy, UntrainedModel
from ngrpo.types.rollouts import Request


def speeds(
    subject: UntrainedModel,
    rounds: int,
    known: Mapping[str, Speed],
    deadline: Deadline,
    save: Callable[[Mapping[str, Speed]], None],
) -> bool:
    """Measures tokens a second, which needs a machine with nothing else on it.

    The strategies take turns round by round, so that a machine whose speed changes is no advantage to any of them. A
    round before the others warms up and is not counted. No round begins that would not end in time.

    Args:
        subject: what is measured.
        rounds: their number in the end.
        known: rounds of an earlier call by arm, which are dropped if another device made them.
        deadline: when to stop.
        save: gets the speeds by arm after each round.

    Returns:
        Whether all rounds are done.
    """
    found = dict(known) if {one.device for one in known.values()} == {subject.device_name()} else {}
    done = min((len(one.tokens_per_s) for one in found.values()), default=0)
    longest = 0.0
    for number in range(done, rounds + 1):
        if deadline.remaining_s() <= longest:
            return False
        start = time.monotonic()
        for strategy in subject.strategies:
            tokens, seconds = _generated(subject, strategy, number)
            for arm in strategy.arms if number > done else ():
                before = found[arm].tokens_per_s if arm in found else ()
                found[arm] = Speed([*before, round(tokens / seconds, 1)], tokens, subject.device_name())
        longest = max(longest, time.monotonic() - start) if number > done else 0.0
        save(found)
    return True


def _generated(subject: UntrainedModel, strategy: Strategy, number: int) -> tuple[int, float]:
    """Returns the tokens of a round and the seconds it took."""
    requests = [Request(ids, request_key(0, number, n)) for n, ids in enumerate(subject.prompts)]
    bound = strategy.worker.bound
    start = time.perf_counter()
    made = strategy.worker.engine.generate(requests, strategy.worker.sampling, bound)
    if subject.device.type == "cuda":
        torch.cuda.synchronize()
    return sum(rollout.length for rollout in made), time.perf_counter() - start


def effects(
    subject: UntrainedModel,
    known: Mapping[str, Effect | None],
    deadline: Deadline,
    save: Callable[[Mapping[str, Effect | None]], None],
) -> bool:
    """Measures what mixed steps change (`ngrpo.study.effect`), strategy by strategy.

    Args:
        subject: what is measured.
        known: effects of an earlier call by arm.
        deadline: when to stop.
        save: gets the effects by arm after each strategy; None for one that mixes nothing.

    Returns:
        Whether all strategies were measured.
    """
    found = dict(known)
    keys = [request_key(0, number) for number in range(len(subject.prompts))]
    longest = 0.0
    for strategy in subject.strategies:
        if set(strategy.arms) <= set(found):
            continue
        if deadline.remaining_s() <= longest:
            return False
        start = time.monotonic()
        mixes = strategy.worker.exploration.mixes
        one = effect(strategy.worker, subject.prompts, keys) if mixes else None
        found |= dict.fromkeys(strategy.arms, one)
        save(found)
        longest = max(longest, time.monotonic() - start)
    return True
