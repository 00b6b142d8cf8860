"""Refusals of prefixes that no engine could continue as they were meant."""

from collections.abc import Sequence

from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Request, Sampling


def check_prefixes(
    requests: Sequence[Request], sampling: Sampling, strategy: Exploration, embedding_shape: Sequence[int]
) -> None:
    """Refuses the first prefix that the strategy of the call cannot go on from.

    Args:
        requests: of one call.
        sampling: its settings.
        strategy: its strategy.
        embedding_shape: V and d.

    Raises:
        SettingError: says which request, and why.
    """
    for number, request in enumerate(requests):
        if request.prefix is None:
            continue
        who = f"request {number} has a prefix"
        _check_tokens(who, request.prefix.ids, sampling, embedding_shape[0])
        if strategy.stateful and request.explore:
            raise SettingError(
                f"{who}, and {type(strategy).__name__} needs at each step what it kept of the step before, which a "
                "prefix does not hold; leave the prefix out, or sample the request with explore=False."
            )
        if request.prefix.mixture is not None:
            _check_mixture(who, request.prefix.mixture, strategy, embedding_shape)


def _check_tokens(who: str, ids: tuple[int, ...], sampling: Sampling, vocabulary: int) -> None:
    if len(ids) >= sampling.max_new_tokens:
        raise SettingError(
            f"{who} of {len(ids)} tokens, which count against max_new_tokens={sampling.max_new_tokens} and leave none "
            "to generate; cut the prefix, or raise max_new_tokens."
        )
    for token in ids:
        if not 0 <= token < vocabulary:
            raise SettingError(
                f"{who} with token {token}, which is no id of the model's vocabulary of {vocabulary}; use the model's "
                "own tokenizer."
            )
        if token in sampling.stop_ids:
            raise SettingError(f"{who} with the stop token {token}, after which nothing follows; cut it before.")


def _check_mixture(who: str, mixture: Mixture, strategy: Exploration, embedding_shape: Sequence[int]) -> None:
    if not len(mixture.positions):
        return
    vocabulary, dim = embedding_shape
    record = mixture.record
    filled = {"scores": strategy.scored, "vector": strategy.dense, "noise": strategy.noisy}
    recorded = {name: getattr(record, name) is not None for name in filled}
    wide = record.vector is None or record.vector.shape[-1] == dim
    if record.ids.shape[-1] != strategy.width or recorded != filled or not wide:
        raise SettingError(
            f"{who} whose mixtures have {_kind(record)}, and {type(strategy).__name__} records others; continue it "
            "with the strategy and the model that made it."
        )
    if _outside(record.ids, vocabulary):
        raise SettingError(
            f"{who} that mixes an id outside of the model's vocabulary of {vocabulary}; continue it with the model "
            "that made it."
        )


def _outside(ids: Tensor, vocabulary: int) -> bool:
    return bool(((ids < 0) | (ids >= vocabulary)).any())


def _kind(record: Record) -> str:
    channels = [name for name in ("scores", "vector", "noise") if getattr(record, name) is not None]
    return f"{record.ids.shape[-1]} ids each" + (f" and {', '.join(channels)}" if channels else "")
