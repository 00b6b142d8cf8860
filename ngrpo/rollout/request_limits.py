"""Refusals of requests that an engine cannot serve as they are."""

from collections.abc import Iterable, Sequence

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.types.rollouts import Request, Sampling


def check_requests(
    requests: Sequence[Request], sampling: Sampling, strategy: Exploration, max_tokens: int, vocabulary: int
) -> None:
    """Refuses the first request that would have to be cut or changed.

    Args:
        requests: of one call.
        sampling: its settings.
        strategy: its strategy.
        max_tokens: most tokens of prompt and response together.
        vocabulary: V, rows of the embedding.

    Raises:
        SettingError: says which request, and why.
    """
    for token in _outside(sampling.stop_ids, vocabulary):
        raise SettingError(f"stop token {token} is no id of the model's vocabulary of {vocabulary}; remove it.")
    for number, request in enumerate(requests):
        _check_prompt(number, request, sampling.max_new_tokens, max_tokens, vocabulary)
        _check_prefix(number, request, sampling.max_new_tokens, strategy)


def _check_prompt(number: int, request: Request, budget: int, max_tokens: int, vocabulary: int) -> None:
    length = len(request.prompt_ids)
    if length == 0:
        raise SettingError(f"request {number} has an empty prompt; give it one token or more.")
    if length + budget > max_tokens:
        raise SettingError(
            f"request {number} has {length} prompt tokens, which with max_new_tokens={budget} are more than the "
            f"{max_tokens} that the engine was started for; shorten it, or raise rollout.engine.max_prompt_tokens."
        )
    given = () if request.prefix is None else request.prefix.ids
    for token in _outside((*request.prompt_ids, *given), vocabulary):
        raise SettingError(
            f"request {number} has token {token}, which is no id of the model's vocabulary of {vocabulary}; use the "
            "model's own tokenizer."
        )


def _check_prefix(number: int, request: Request, budget: int, strategy: Exploration) -> None:
    if request.given >= budget:
        raise SettingError(
            f"request {number} has a prefix of {request.given} tokens, which leaves none of max_new_tokens={budget}; "
            "raise it, or shorten the prefix."
        )
    if request.prefix is None or request.prefix.mixture is None:
        return
    record = request.prefix.mixture.record
    channels = (strategy.scored, strategy.dense, strategy.noisy)
    if record.ids.shape[-1] != strategy.width or channels != tuple(channel is not None for channel in record[2:]):
        raise SettingError(
            f"request {number} has a prefix that another kind of strategy than {strategy} recorded; continue it with "
            "the one that made it."
        )


def _outside(ids: Iterable[int], vocabulary: int) -> Iterable[int]:
    return (token for token in ids if not 0 <= token < vocabulary)
