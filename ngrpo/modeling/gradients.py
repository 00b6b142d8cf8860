"""Sums of gradients over microbatches and chunks: float32 totals of what is computed in bfloat16."""

import torch
from torch import Tensor

from ngrpo.modeling.compiled import compiled_for

_HALF = (torch.float16, torch.bfloat16)


def accumulate(parameter: Tensor, gradient: Tensor) -> None:
    """Adds a gradient to the parameter's, in the parameter's dtype.

    On a GPU compiled: PyTorch's own addition of two dtypes reaches two thirds of the memory's bandwidth. The sum is the
    same, bit for bit.

    Args:
        parameter: its ``grad`` is None or the sum so far.
        gradient: of the parameter's shape, in another dtype, so that the first is copied.
    """
    if parameter.grad is None:
        parameter.grad = gradient.to(parameter.dtype)
    else:
        compiled_for(gradient, _add)(parameter.grad, gradient)


def _add(total: Tensor, gradient: Tensor) -> None:
    total.add_(gradient)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds ``left @ right`` to a float32 total.

    On a GPU a product of half-precision matrices is added in the registers that it is made in: it is neither rounded to
    their dtype nor written and read once more.

    Args:
        total: float32 [M, N].
        left: [M, K].
        right: [K, N].
    """
    if total.is_cuda and left.dtype in _HALF:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right
