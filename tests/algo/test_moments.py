import math
import statistics

import pytest
import torch
from over_ranks import alone, in_ranks

from ngrpo.algo.moments import moments, whitened

VALUES = torch.tensor([0.3, 1.5, math.nan, -0.2, 0.9, 0.9])


def test_moments_are_those_of_the_valid_values() -> None:
    valid = [v for v in VALUES.double().tolist() if not math.isnan(v)]
    found = moments(VALUES, alone)
    assert found.mean.item() == pytest.approx(statistics.mean(valid))
    assert found.variance.item() == pytest.approx(statistics.variance(valid))
    assert not found.equal


@pytest.mark.parametrize("sizes", [[1, 5], [3, 3], [0, 6], [2, 1, 3]])
def test_moments_do_not_depend_on_ranks(sizes: list[int]) -> None:
    parts = list(VALUES.split(sizes))
    for found in in_ranks(moments, parts):
        assert [float(v) for v in found] == pytest.approx([float(v) for v in moments(VALUES, alone)])


@pytest.mark.parametrize("values", [[], [math.nan], [0.9], [0.9, 0.9, 0.9], [0.9, math.nan, 0.9]])
def test_equal_values_are_whitened_to_exactly_zero(values: list[float]) -> None:
    found = whitened(torch.tensor(values), alone)
    assert torch.equal(found.isnan(), torch.tensor(values).isnan())
    assert (found.nan_to_num(0.0) == 0).all()


def test_equal_on_each_rank_is_not_equal_over_ranks() -> None:
    for found in in_ranks(whitened, [torch.zeros(3), torch.ones(3)]):
        assert (found != 0).all()
