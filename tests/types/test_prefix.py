"""What is a prefix of a response, and what is refused as one."""

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request


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
