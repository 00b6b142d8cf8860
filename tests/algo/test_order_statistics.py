import math

import pytest
import torch
from over_ranks import alone, in_ranks

from ngrpo.algo.order_statistics import quantile, smallest, total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_are_those_of_a_sort(dtype: torch.dtype) -> None:
    values = torch.randn(40, dtype=dtype, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    values = torch.cat((values, torch.tensor([0.0, -0.0, 1e-300, -1e300, 1e300], dtype=dtype).nan_to_num()))
    expected = values.sort().values.tolist()
    assert smallest(values, range(1, 46), alone) == expected
    assert smallest(values, [99], alone) == expected[-1:]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.25, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_quantiles_are_those_of_torch(share: float, size: int) -> None:
    values = torch.rand(size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    expected = float(torch.quantile(values, share))
    with_gaps = torch.cat((values, torch.tensor([math.nan])))
    assert quantile(with_gaps, share, alone) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("sizes", [[1, 9], [5, 5], [0, 10], [2, 3, 5]])
def test_ranks_share_the_values(sizes: list[int]) -> None:
    values = torch.rand(10, generator=torch.Generator().manual_seed(1))
    values[3] = math.nan
    for found in in_ranks(lambda part, reduce: quantile(part, 0.7, reduce), list(values.split(sizes))):
        assert found == quantile(values, 0.7, alone)


def test_without_values_there_is_none() -> None:
    assert math.isnan(quantile(torch.tensor([math.nan]), 0.5, alone))
    assert total(torch.tensor([True, False, True]), alone) == 2


def test_equal_values_are_their_own_quantile() -> None:
    values = torch.full((7,), 0.1)
    assert bool((values >= quantile(values, 0.8, alone)).all())
