"""Refusals of requests that an engine cannot serve as they are."""

import math
from collections.abc import Iterable, Sequence

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Sampling

_KEYS = 2**63
"""Number of keys: those that int64 holds."""


def check_sampling(sampling: Sampling, vocabulary: int, max_tokens: int | None = None) -> None:
    """Refuses settings with which no request could be served.

    Args:
        sampling: of a call.
        vocabulary: V.
        max_tokens: see `check_requests`.

    Raises:
        SettingError: says which, and why.
    """
    if not 0 < sampling.temperature < math.inf:
        raise SettingError(
            f"temperature={sampling.temperature} cannot divide logits; choose a positive value, or ask for the "
            "likeliest tokens."
        )
    for token in _outside(sampling.stop_ids, vocabulary):
        raise SettingError(f"stop token {token} is no id of the model's vocabulary of {vocabulary}; remove it.")
    if max_tokens is not None and sampling.max_new_tokens >= max_tokens:
        raise SettingError(
            f"max_new_tokens={sampling.max_new_tokens} leaves no room for a prompt in the {max_tokens} tokens that the "
            "engine was started for; lower it, or raise rollout.max_new_tokens."
        )


def check_requests(
    requests: Sequence[Request],
    sampling: Sampling,
    strategy: Exploration,
    embedding_shape: Sequence[int],
    max_tokens: int | None = None,
) -> None:
    """Refuses the first request that would have to be cut or changed.

    Args:
        requests: of one call.
        sampling: its settings.
        strategy: its strategy.
        embedding_shape: V and d.
        max_tokens: most tokens of prompt and response together; None for no limit.

    Raises:
        SettingError: says which request, and why.
    """
    vocabulary = embedding_shape[0]
    check_sampling(sampling, vocabulary, max_tokens)
    for number, request in enumerate(requests):
        budget = request.limit(sampling.max_new_tokens)
        if budget < 1:
            raise SettingError(f"request {number} has max_new_tokens={budget}, which makes no token; choose 1 or more.")
        if not 0 <= request.key < _KEYS:
            raise SettingError(
                f"request {number} has key={request.key}, which is no number of 63 bits; make it with request_key."
            )
        _check_prompt(number, request, budget, max_tokens, vocabulary)
        if request.prefix is None:
            continue
        who = f"request {number} has a prefix"
        _check_given(who, request.prefix, budget, sampling.stop_ids)
        if strategy.stateful and request.explore:
            raise SettingError(
                f"{who}, and {type(strategy).__name__} needs at each step what it kept of the step before, which a "
                "prefix does not hold; leave the prefix out, or sample the request with explore=False."
            )
        if request.prefix.mixture is not None:
            _check_mixture(who, request.prefix.mixture, strategy, embedding_shape)


def check_positions(requests: Sequence[Request], sampling: Sampling, most: int | None, path: str) -> None:
    """Refuses the first request that could be longer than a model can be run on exactly.

    Args:
        requests: of one call.
        sampling: its settings.
        most: positions before rotary frequencies are switched or a window hides tokens; None for no limit.
        path: of the model, for the message.

    Raises:
        SettingError: says which request.
    """
    if most is None:
        return
    for number, request in enumerate(requests):
        length, budget = len(request.prompt_ids), request.limit(sampling.max_new_tokens)
        if length + budget > most:
            raise SettingError(
                f"request {number} has {length} prompt tokens, which with max_new_tokens={budget} are more than the "
                f"{most} positions within which model.path={path} has one set of rotary frequencies and no window; "
                "shorten it, or lower max_new_tokens."
            )


def _check_prompt(number: int, request: Request, budget: int, max_tokens: int | None, vocabulary: int) -> None:
    length = len(request.prompt_ids)
    if length == 0:
        raise SettingError(f"request {number} has an empty prompt; give it one token or more.")
    if max_tokens is not None and length + budget > max_tokens:
        raise SettingError(
            f"request {number} has {length} prompt tokens, which with max_new_tokens={budget} are more than the "
            f"{max_tokens} that the engine was started for; shorten it, or raise rollout.engine.max_prompt_tokens."
        )
    given = () if request.prefix is None else request.prefix.ids
    forced = () if request.forced_token is None else (request.forced_token,)
    for token in _outside((*request.prompt_ids, *given, *forced), vocabulary):
        raise SettingError(
            f"request {number} has token {token}, which is no id of the model's vocabulary of {vocabulary}; use the "
            "model's own tokenizer."
        )


def _check_given(who: str, prefix: Prefix, budget: int, stop_ids: Sequence[int]) -> None:
    given = len(prefix.ids)
    if given >= budget:
        raise SettingError(
            f"{who} of {given} tokens, which leaves none of max_new_tokens={budget}; raise it, or shorten the prefix."
        )
    for token in set(stop_ids).intersection(prefix.ids):
        raise SettingError(f"{who} with the stop token {token}, after which nothing follows; cut it before.")


def _check_mixture(who: str, mixture: Mixture, strategy: Exploration, embedding_shape: Sequence[int]) -> None:
    if not len(mixture.positions):
        return
    vocabulary, dim = embedding_shape
    record = mixture.record
    if _shapes(record) != _expected_shapes(strategy, len(mixture.positions), dim):
        found = ", ".join(f"{name} {list(shape)}" for name, shape in _shapes(record).items())
        raise SettingError(
            f"{who} whose mixtures have {found}, and {type(strategy).__name__} records "
            "others; continue it with the strategy and the model that made it."
        )
    for name in ("weights", "vector", "noise"):
        if (channel := getattr(record, name)) is not None and not bool(channel.isfinite().all()):
            raise SettingError(f"{who} whose mixtures have {name} that are not finite; continue it as it was made.")
    if record.ids.is_floating_point() or bool(((record.ids < 0) | (record.ids >= vocabulary)).any()):
        raise SettingError(
            f"{who} that mixes an id outside of the model's vocabulary of {vocabulary}; continue it with the model "
            "that made it."
        )


def _outside(ids: Sequence[int], vocabulary: int) -> Iterable[int]:
    if not ids or (min(ids) >= 0 and max(ids) < vocabulary):
        return ()
    return (token for token in ids if not 0 <= token < vocabulary)


def _shapes(record: Record) -> dict[str, tuple[int, ...]]:
    return {name: tuple(channel.shape) for name, channel in record._asdict().items() if channel is not None}


def _expected_shapes(strategy: Exploration, mixed: int, dim: int) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the channels that a strategy records at so many positions."""
    sums = (mixed, strategy.width)
    filled: dict[str, tuple[bool, tuple[int, ...]]] = {
        "ids": (True, sums),
        "weights": (True, sums),
        "scores": (strategy.scored, sums),
        "vector": (strategy.dense, (mixed, dim)),
        "noise": (strategy.noisy, (mixed,)),
    }
    return {name: shape for name, (recorded, shape) in filled.items() if recorded}
