"""The split of a session's records into rollouts."""

from collections.abc import Sequence
from typing import Protocol

import torch

from ngrpo.rollout.records.session import CollectedRecords
from ngrpo.types.rollouts import Mixture, Request, Rollout, StopReason


class Completion(Protocol):
    """An engine's own output for one request, such as vLLM's ``CompletionOutput``.

    Attributes:
        token_ids: the response.
        finish_reason: "stop" after a stop token.
    """

    token_ids: Sequence[int]
    finish_reason: str | None


def split_rollouts(
    requests: Sequence[Request], outputs: Sequence[Completion], collected: CollectedRecords
) -> list[Rollout]:
    """Returns one rollout a request.

    Args:
        requests: N requests.
        outputs: the engine's completion of each, without the request's prefix.
        collected: their records.

    Raises:
        RuntimeError: the engine returned other tokens than were recorded.
    """
    ends = collected.mixed.sum(1).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [
        _rollout(request, output, collected, row, slice(start, end))
        for row, (request, output, start, end) in enumerate(zip(requests, outputs, starts, ends, strict=True))
    ]


def _rollout(request: Request, output: Completion, collected: CollectedRecords, row: int, mixed: slice) -> Rollout:
    """Makes a rollout of one row of the records; ``mixed`` are its entries of the sparse record."""
    prefix = () if request.prefix is None else request.prefix.ids
    length = request.given + len(output.token_ids)
    response = collected.tokens[row, :length].to(torch.int64, copy=True)
    # Lists are compared: a tensor of a list takes several times as long to make.
    if response.tolist() != [*prefix, *output.token_ids]:
        raise RuntimeError("the engine returned other tokens than were recorded; this is a fault in its adapter")
    at = collected.mixed[row, :length].nonzero()[:, 0]
    return Rollout(
        key=request.key,
        prompt_ids=torch.tensor(request.prompt_ids),
        response_ids=response,
        log_probs=collected.log_probs[row, :length].clone(),
        mixture=Mixture(at + len(request.prompt_ids), collected.record.map(lambda channel: channel[mixed])),
        stop_reason=StopReason.STOP if output.finish_reason == "stop" else StopReason.LENGTH,
        prefix_length=request.given,
        support=None if collected.supports is None else collected.supports[row],
        distributions=collected.distributions
        and collected.distributions.map(lambda channel: channel[row, :length].clone()),
    )
