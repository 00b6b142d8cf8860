"""Running sums that the compiler does not look into."""

import torch
from torch.library import opcheck

from ngrpo.utils.running_sums import running_sums


def test_are_those_of_cumsum_whatever_the_layout() -> None:
    values = torch.randn(6, 40, dtype=torch.float64)
    for laid_out in (values, values.T, values[:, ::2]):
        assert torch.equal(running_sums(laid_out), laid_out.cumsum(-1))
        opcheck(running_sums, (laid_out,))


def test_are_one_whole_graph_for_any_number_of_rows() -> None:
    run = torch.compile(lambda values: running_sums(2 * values) + 1, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (1, 3, 8):
        values = torch.randn(rows, 30)
        assert torch.equal(run(values), (2 * values).cumsum(-1) + 1)
