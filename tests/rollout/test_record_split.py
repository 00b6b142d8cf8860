"""The split of a session's records into rollouts; needs no vLLM."""

from dataclasses import dataclass

import pytest
import torch

from ngrpo.rollout.records.session import CollectedRecords
from ngrpo.rollout.records.split import split_rollouts
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Prefix, Request, Rollout, StopReason

REQUESTS = [Request((5, 6, 7), key=1), Request((8,), key=2, prefix=Prefix((3,)))]


@dataclass(frozen=True)
class Completion:
    """What an engine returned."""

    token_ids: list[int]
    finish_reason: str


COMPLETIONS = [Completion([1, 2], "length"), Completion([4, 9], "stop")]


def records() -> CollectedRecords:
    """Those of two responses, [1, 2] and 3 (given), 4 and 9; each is mixed at its last slot, the first also before."""
    tokens = torch.tensor([[1, 2, 77], [3, 4, 9]], dtype=torch.int32)
    mixed = torch.tensor([[True, True, False], [False, False, True]])
    record = Record(ids=torch.tensor([[10], [11], [12]]), weights=torch.tensor([[0.1], [0.2], [0.3]]))
    return CollectedRecords(tokens, -torch.arange(6.0).view(2, 3), mixed, record)


def made() -> tuple[CollectedRecords, list[Rollout]]:
    collected = records()
    return collected, split_rollouts(REQUESTS, COMPLETIONS, collected)


def test_each_rollout_has_its_own_rows():
    _, (first, second) = made()
    assert (first.response_ids.tolist(), second.response_ids.tolist()) == ([1, 2], [3, 4, 9])
    assert first.response_ids.dtype is torch.int64
    assert (first.log_probs.tolist(), second.log_probs.tolist()) == ([0, -1], [-3, -4, -5])
    assert (first.mixture.positions.tolist(), second.mixture.positions.tolist()) == ([3, 4], [3])
    assert first.mixture.record.ids.tolist() == [[10], [11]]
    assert second.mixture.record.ids.tolist() == [[12]]
    assert (first.stop_reason, second.stop_reason) == (StopReason.LENGTH, StopReason.STOP)
    assert (first.prefix_length, second.prefix_length) == (0, 1)


def test_a_rollout_keeps_its_numbers_when_the_records_are_written_again():
    collected, (first, _) = made()
    collected.tokens.zero_()
    collected.log_probs.zero_()
    assert (first.response_ids.tolist(), first.log_probs.tolist()) == ([1, 2], [0, -1])


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("at", [0, 1])
def test_other_tokens_than_were_recorded_are_refused(row: int, at: int):
    collected = records()
    collected.tokens[row, at] += 1
    with pytest.raises(RuntimeError, match="other tokens than were recorded"):
        split_rollouts(REQUESTS, COMPLETIONS, collected)
