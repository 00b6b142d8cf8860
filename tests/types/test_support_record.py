"""The compact record of supports gives back the rows that it was made of."""

import torch

from ngrpo.types.support import NO_ID, Support

ROWS = torch.tensor([[5, 2, NO_ID], [NO_ID, NO_ID, NO_ID], [7, 1, 3], [4, NO_ID, NO_ID]])


def test_rows_come_back() -> None:
    support = Support.of(ROWS)
    assert support.counts.tolist() == [2, 0, 3, 1]
    assert support.ids.tolist() == [5, 2, 7, 1, 3, 4]
    assert support.rows().equal(ROWS)
    assert Support.of(ROWS[:, :2].int()).ids.dtype == torch.int32


def test_later_positions_and_several_responses() -> None:
    support = Support.of(ROWS)
    assert support.after(1).rows().equal(ROWS[1:])
    assert support.after(0).rows().equal(ROWS)
    assert [support.before(n).rows().tolist() for n in (0, 1, 4)] == [[], [[5, 2]], ROWS.tolist()]
    assert len(support.after(4).counts) == 0
    joined = Support.cat([support.after(2), Support.whole(2), support])
    assert joined.rows().equal(torch.cat((ROWS[2:], torch.full((2, 3), NO_ID), ROWS)))


def test_what_was_drawn_from_the_whole_vocabulary_takes_no_place() -> None:
    assert Support.whole(3).rows().shape == (3, 0)
    assert Support.of(torch.full((3, 128), NO_ID)).rows().shape == (3, 0)
