"""The probe: requests whose rollouts mix often and share prompts, so that a fault of the engine's mixing shows."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.types.rollouts import Prefix, Request, Rollout, Sampling

TEMPERATURE = 0.7
"""Of all probes: far enough from 1 that an engine without a temperature draws, mixes and scores otherwise."""

_SEED = 21
_TOKENS = 32
"""Of each response."""
_SHORT = (40, 11)
"""Tokens of the prompts that nothing shares."""
_EXPLORING, _PLAIN = 4, 2
"""Rollouts a prompt: made by the strategy, and sampled plainly."""
_REPEATED = _EXPLORING
"""Responses that prompts repeat."""
_RATE = 0.5
"""Least rate of mixed positions."""
_BLOCK, _BLOCKS = 128, 2
"""Tokens of the largest blocks that a cache of prompts has, and how many whole ones a long prompt fills."""


@dataclass(frozen=True)
class Limits:
    """Bounds of an engine's requests.

    Attributes:
        vocabulary: number of token ids.
        prompt: longest prompt.
        new: longest response.
    """

    vocabulary: int
    prompt: int
    new: int


def mixing_often(bound: BoundExploration) -> BoundExploration:
    """Returns a strategy as it mixes most: up to the last token, at half of the positions or more.

    No token ends the reasoning, and the rates of mixed positions, which are the fields ``rate`` and ``rate_*``, are
    raised to a half. A strategy without such a field, or one that refuses the values, keeps its own.
    """
    return replace(bound, strategy=_raised(bound.strategy), end_ids=())


def _raised(strategy: Any) -> Any:
    if not is_dataclass(strategy):
        return strategy
    names = [field.name for field in fields(strategy) if field.init]
    rates = {name: getattr(strategy, name) for name in names if name == "rate" or name.startswith("rate_")}
    raised = {name: max(rate, _RATE) for name, rate in rates.items() if isinstance(rate, float | int)}
    try:
        return replace(strategy, **raised)  # type: ignore[type-var]
    except (SettingError, ValueError):
        return strategy


def sampling(limits: Limits) -> Sampling:
    """Returns how the rollouts are made; no token ends them."""
    return Sampling(TEMPERATURE, _new(limits), ())


def requests(limits: Limits, explores: bool) -> list[Request]:
    """Returns requests for random prompts of several lengths; the last prompt is the long one.

    Args:
        limits: of the engine.
        explores: whether the strategy mixes.
    """
    generator = torch.Generator().manual_seed(_SEED)
    made = []
    for number, length in enumerate((*(min(length, limits.prompt) for length in _SHORT), _long(limits))):
        ids = tuple(torch.randint(limits.vocabulary, (length,), generator=generator).tolist())
        for sample in range(_PLAIN + explores * _EXPLORING):
            made.append(Request(ids, request_key(_SEED, 0, number, sample), explore=sample >= _PLAIN))
    return made


def repeated(made: Sequence[Rollout]) -> Sequence[Rollout]:
    """Returns those of the rollouts of `requests` whose text is repeated as a prompt: of the long prompt."""
    return made[-_REPEATED:]


def followers(
    asked: Sequence[Request], made: Sequence[Rollout], limits: Limits, strategy: Exploration
) -> list[Request]:
    """Returns requests whose prompts stand in a cache already, rightly or wrongly.

    Two share the long prompt with requests before. Others have the texts of rollouts, prompt and response, as their
    prompts: what was computed of mixtures there must not be taken for what is computed of tokens. The last go on from
    the same tokens, once mixed as they were and once not; plainly only, if the strategy has a state, which no prefix
    holds.

    Args:
        asked: `requests`.
        made: a rollout of each.
        limits: of the engine.
        strategy: of the rollouts.
    """
    prompt, new = asked[-1].prompt_ids, _new(limits)
    texts = [(*one.prompt_ids.tolist(), *one.response_ids.tolist()) for one in repeated(made)]
    fitting = [text for text in texts if len(text) + new <= limits.prompt + limits.new]
    given = [Prefix(mixed.ids, mixture) for mixed in _halves(made[-1]) for mixture in (mixed.mixture, None)]
    starts: list[tuple[tuple[int, ...], Prefix | None]] = [(ids, None) for ids in (prompt, *fitting)]
    starts += [(prompt, prefix) for prefix in given]
    return [
        Request(ids, request_key(_SEED, 1, number, sample), explore, prefix)
        for number, (ids, prefix) in enumerate(starts)
        for sample, explore in enumerate((True, False))
        if not (explore and prefix and strategy.stateful)
    ]


def _halves(made: Rollout) -> list[Prefix]:
    """Returns the first half of a response; none of one token."""
    return [made.cut(made.length // 2)] if made.length > 1 else []


def _new(limits: Limits) -> int:
    """Returns the tokens of a response, which a prompt can repeat if there is any room for that."""
    return max(1, min(_TOKENS, limits.new, (limits.prompt + limits.new - 1) // 2))


def _long(limits: Limits) -> int:
    """Returns the length of a prompt after which a response, but for its last token, ends with a block of the cache.

    All of the response stands in whole blocks then, which a prompt that repeats it could take; there must be room for
    that prompt and a response.
    """
    new = _new(limits)
    most = max(1, min(limits.prompt, limits.prompt + limits.new - 2 * new))
    fitting = [blocks * _BLOCK - new + 1 for blocks in range(1, _BLOCKS + 2)]
    return max((length for length in fitting if length <= most), default=most)
