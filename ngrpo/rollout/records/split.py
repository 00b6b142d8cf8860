"""The split of a session's records into rollouts."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ngrpo.rollout.records.session import CollectedRecords
from ngrpo.types.records import Record
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
        requests: S requests; number i had slot i.
        outputs: the engine's completion of each.
        collected: the records of S slots, which may extend beyond the response that the engine returned.

    Raises:
        RuntimeError: the engine returned other tokens than were recorded.
    """
    ends = collected.mixed.sum(1).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [
        _rollout(request, output, collected, slot, start)
        for slot, (request, output, start) in enumerate(zip(requests, outputs, starts, strict=True))
    ]


def _rollout(request: Request, output: Completion, collected: CollectedRecords, slot: int, start: int) -> Rollout:
    """Cuts one slot's records to the response; its mixed positions start at ``start`` of the sparse record."""
    length = len(output.token_ids)
    response = torch.tensor(output.token_ids, dtype=torch.int64)
    if not torch.equal(response, collected.tokens[slot, :length].long()):
        raise RuntimeError("the engine returned other tokens than were recorded; this is a fault in its adapter")
    at = collected.mixed[slot, :length].nonzero()[:, 0]
    return Rollout(
        key=request.key,
        prompt_ids=torch.tensor(request.prompt_ids),
        response_ids=response,
        log_probs=collected.log_probs[slot, :length].clone(),
        mixture=Mixture(at + len(request.prompt_ids), _slice(collected.record, start, start + len(at))),
        stop_reason=StopReason.STOP if output.finish_reason == "stop" else StopReason.LENGTH,
    )


def _slice(record: Record, start: int, stop: int) -> Record:
    def cut(channel: Tensor) -> Tensor:
        return channel[start:stop]

    return record.map(cut)
