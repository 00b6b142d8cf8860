import math

import torch

from ngrpo.algo.groups import Groups


def test_responses_stand_in_the_row_of_their_key() -> None:
    groups = Groups.of([7, 3, 7, 7, 3])
    assert groups.rows.tolist() == [0, 1, 0, 0, 1]
    assert groups.columns.tolist() == [0, 0, 1, 2, 1]
    assert groups.shape == (2, 3)
    table = groups.table(torch.arange(5.0))
    assert table[0].tolist() == [0.0, 2.0, 3.0]
    assert table[1, :2].tolist() == [1.0, 4.0]
    assert math.isnan(table[1, 2])
    assert groups.table(torch.arange(5), fill=-1)[1].tolist() == [1, 4, -1]


def test_flat_is_the_way_back() -> None:
    groups = Groups.of([2, 1, 2, 2, 1, 9])
    values = torch.arange(6.0)
    assert groups.flat(groups.table(values)).tolist() == values.tolist()
    channels = torch.stack([groups.table(values), groups.table(-values)])
    assert groups.flat(channels).tolist() == [values.tolist(), (-values).tolist()]


def test_no_responses_make_an_empty_table() -> None:
    groups = Groups.of([])
    assert groups.shape == (0, 0)
    assert groups.flat(groups.table(torch.zeros(0))).tolist() == []
