"""Sums of gradients: in float32, the same compiled, and products that are added where they are made."""

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from ngrpo.modeling import compiled, gradients
from ngrpo.modeling.gradients import accumulate, add_product

SHAPES = [(5, 7), (7, 5), (6, 6), (9,), (33, 8)]


def made(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_summed_in_the_dtype_of_the_parameter(shape: tuple[int, ...], dtype: torch.dtype):
    parameter, parts = nn.Parameter(torch.zeros(shape)), [made(shape, dtype, seed) for seed in range(3)]
    first = parts[0].clone()
    for part in parts:
        accumulate(parameter, part)
    assert parameter.grad is not None
    assert parameter.grad.dtype == torch.float32
    assert torch.equal(parameter.grad, (parts[0].float() + parts[1].float()) + parts[2].float())
    assert torch.equal(parts[0], first)


def test_compiled_for_a_gpu_the_sum_is_the_same_bit_for_bit(monkeypatch: pytest.MonkeyPatch):
    """Compiled for this CPU here: a graph for matrices, one for square ones, one for vectors."""
    monkeypatch.setattr(gradients, "compiled_for", lambda tensor, function: compiled._compiled(function))
    torch._dynamo.reset()
    counters.clear()
    for shape in SHAPES * 2:
        parameter, parts = nn.Parameter(torch.zeros(shape)), [made(shape, torch.bfloat16, seed) for seed in range(3)]
        for part in parts:
            accumulate(parameter, part)
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, (parts[0].float() + parts[1].float()) + parts[2].float())
    assert counters["stats"]["unique_graphs"] <= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_added_to_a_float32_total(dtype: torch.dtype):
    left, right, total = made((5, 9), dtype, 1), made((9, 4), dtype, 2), made((5, 4), torch.float32, 3)
    expected = total + (left @ right).float()
    add_product(total, left, right)
    assert torch.equal(total, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("transposed", [False, True])
def test_on_a_gpu_a_product_is_not_rounded_before_it_is_added(transposed: bool):
    left, right = made((256, 512), torch.bfloat16, 1).cuda(), made((512, 128), torch.bfloat16, 2).cuda()
    left = left.T.contiguous().T if transposed else left
    total = made((256, 128), torch.float32, 3).cuda()
    exact = total.double() + left.double() @ right.double()
    rounded = total + left @ right
    same = total
    add_product(total, left, right)
    assert total is same
    assert (total - exact).norm() < 1e-6 * exact.norm()
    assert (total - exact).norm() < 0.01 * (rounded - exact).norm()
