"""Rows in order, which the compiler does not look into."""

import pytest
import torch
from torch.library import opcheck

from ngrpo.utils.sorted_rows import sorted_rows


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_are_those_of_a_stable_sort_whatever_the_layout(dtype: torch.dtype, descending: bool) -> None:
    values = torch.randint(0, 9, (6, 40)).to(dtype)  # with many that are equal
    for laid_out in (values, values.T, values[:, ::2]):
        expected = laid_out.sort(dim=-1, stable=True, descending=descending)
        assert torch.equal(sorted_rows(laid_out, descending)[0], expected.values)
        assert torch.equal(sorted_rows(laid_out, descending)[1], expected.indices)
        opcheck(sorted_rows, (laid_out, descending))


def test_are_one_whole_graph_for_any_number_of_rows() -> None:
    def largest_first(values: torch.Tensor) -> torch.Tensor:
        return values.gather(-1, sorted_rows(2 * values, descending=True)[1])

    run = torch.compile(largest_first, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (1, 3, 8):
        values = torch.randn(rows, 30)
        assert torch.equal(run(values), values.sort(-1, descending=True).values)
