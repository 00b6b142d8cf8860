"""The known part of requests: prompts, and prefixes of responses with their records."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.empty_record import empty_record
from ngrpo.types.rollouts import Mixture, Request, Rollout, StopReason


class Beginning(NamedTuple):
    """Requests that start with the same inputs.

    Attributes:
        request: one of them.
        rows: the places of all of them.
    """

    request: Request
    rows: list[int]


def distinct_beginnings(requests: Sequence[Request], strategy: Exploration) -> list[Beginning]:
    """Returns what must be prefilled once each, in the order of the requests."""
    found: dict[object, Beginning] = {}
    for row, request in enumerate(requests):
        found.setdefault(_inputs_of(request, strategy), Beginning(request, [])).rows.append(row)
    return list(found.values())


def known_part(request: Request, strategy: Exploration, like: Tensor) -> Rollout:
    """Returns the prompt and the prefix of a request as a rollout of F tokens, to be replayed as one is.

    Args:
        request: the request.
        strategy: says which channels a record has.
        like: embedding rows [..., d], for the dtype of recorded vectors.
    """
    prefix = request.prefix
    given = None if prefix is None else prefix.mixture
    mixture = given if given is not None and len(given.positions) else _nothing_mixed(strategy, like)
    ids = torch.tensor(() if prefix is None else prefix.ids, dtype=torch.int64)
    return Rollout(
        key=request.key,
        prompt_ids=torch.tensor(request.prompt_ids),
        response_ids=ids,
        log_probs=torch.zeros(len(ids)),
        mixture=mixture,
        stop_reason=StopReason.LENGTH,
        prefix_length=len(ids),
    )


def _nothing_mixed(strategy: Exploration, like: Tensor) -> Mixture:
    cpu = torch.device("cpu")
    vectors = like.new_zeros(0, like.shape[-1], device=cpu) if strategy.dense else None
    return Mixture(torch.zeros(0, dtype=torch.int64), empty_record(strategy, (0,), cpu, vectors))


def _inputs_of(request: Request, strategy: Exploration) -> object:
    """Returns a key that is the same for requests with the same inputs; noise is drawn from a request's own."""
    if request.prefix is None:
        return request.prompt_ids, None, None
    mixture = request.prefix.mixture
    ids = (*request.prompt_ids, *request.prefix.ids)
    if mixture is None or not len(mixture.positions):
        return ids, None, None
    return ids, id(mixture), None if strategy.sums_rows else request.key
