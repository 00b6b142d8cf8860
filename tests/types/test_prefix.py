"""What is a prefix of a response, and what is refused as one."""

from dataclasses import replace

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Rollout, StopReason


def mixture(*positions: int, records: int | None = None) -> Mixture:
    count = len(positions) if records is None else records
    return Mixture(
        torch.tensor(positions, dtype=torch.int64),
        Record(torch.ones(count, 2, dtype=torch.int32), torch.full((count, 2), 0.5)),
    )


def test_a_prefix_lies_right_after_its_prompt() -> None:
    request = Request((5, 6, 7), 1, prefix=Prefix((8, 9), mixture(3, 4)))
    assert request.given == 2


def test_a_request_without_a_prefix_is_given_nothing() -> None:
    assert Request((5,), 1).given == 0


def test_a_prefix_without_tokens_is_refused() -> None:
    with pytest.raises(SettingError, match="a prefix has no tokens"):
        Prefix(())


@pytest.mark.parametrize("position", [2, 5])
def test_a_mixed_position_outside_of_the_prefix_is_refused(position: int) -> None:
    with pytest.raises(SettingError, match=f"mixed at position {position}, outside of its own 3 to 4"):
        Request((5, 6, 7), 1, prefix=Prefix((8, 9), mixture(position)))


@pytest.mark.parametrize("positions", [(4, 3), (3, 3)])
def test_positions_that_do_not_ascend_are_refused(positions: tuple[int, ...]) -> None:
    with pytest.raises(SettingError, match="do not ascend"):
        Prefix((8, 9), mixture(*positions))


def test_a_record_of_another_length_than_its_positions_is_refused() -> None:
    with pytest.raises(SettingError, match=r"has 1 positions and a record of \[2\]"):
        Prefix((8, 9), mixture(3, records=2))


def test_positions_that_are_no_integers_are_refused() -> None:
    wrong = Mixture(torch.tensor([3.0]), mixture(3).record)
    with pytest.raises(SettingError, match="int64"):
        Prefix((8, 9), wrong)


def whole() -> Rollout:
    """Five tokens after a prompt of two, mixed at the second and the fourth."""
    record = Record(torch.tensor([[1, 2], [3, 4]], dtype=torch.int32), torch.full((2, 2), 0.5))
    return Rollout(
        key=9,
        prompt_ids=torch.tensor([5, 6]),
        response_ids=torch.tensor([10, 11, 12, 13, 14]),
        log_probs=torch.arange(5.0),
        mixture=Mixture(torch.tensor([3, 5]), record),
        stop_reason=StopReason.LENGTH,
    )


def test_a_prefix_is_cut_with_its_mixtures() -> None:
    prefix = whole().cut(3)
    assert prefix.ids == (10, 11, 12)
    assert prefix.mixture is not None
    assert prefix.mixture.positions.tolist() == [3]
    assert prefix.mixture.record.ids.tolist() == [[1, 2]]


@pytest.mark.parametrize("length", [0, 6, -1])
def test_no_prefix_is_cut_out_of_what_is_not_there(length: int) -> None:
    with pytest.raises(SettingError, match=f"a prefix of {length} tokens cannot be cut out of a response of 5"):
        whole().cut(length)


def test_the_generated_part_of_a_rollout() -> None:
    rollout = replace(whole(), prefix_length=3)
    assert (rollout.generated, rollout.length, rollout.tokens) == (2, 5, 7)
    assert rollout.generated_log_probs.tolist() == [3.0, 4.0]
    assert rollout.without_given_mixtures().mixture.positions.tolist() == [5]
    assert rollout.without_given_mixtures().mixture.record.ids.tolist() == [[3, 4]]
    assert len(rollout.without_mixtures().mixture.positions) == 0
    assert whole().without_given_mixtures().mixture.positions.tolist() == [3, 5]
