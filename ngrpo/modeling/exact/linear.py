"""A linear map whose result for a row depends on the row and the weights alone."""

from typing import Any

import torch
from torch import Tensor

from ngrpo.modeling.exact.order_free import order_free_product


def exact_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns inputs weight^T + bias, like `torch.nn.functional.linear`; the backward pass is that one's.

    Args:
        inputs: [..., K].
        weight: [N, K], of the same dtype.
        bias: [N] or None.

    Returns:
        [..., N].
    """
    if not torch.is_grad_enabled():
        return _value(inputs, weight, bias)
    made: Tensor = _ExactLinear.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
    return made


class _ExactLinear(torch.autograd.Function):
    """See `exact_linear`."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _value(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        to_inputs, to_weight, to_bias = ctx.needs_input_grad
        rows, slopes = inputs.reshape(-1, inputs.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        return (
            gradient @ weight if to_inputs else None,
            slopes.T @ rows if to_weight else None,
            slopes.sum(0) if to_bias else None,
        )


def _value(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = inputs.reshape(-1, inputs.shape[-1])
    if rows.is_cuda:
        from ngrpo.modeling.exact.kernels.products import linear  # Triton is there with a GPU only

        made = linear(rows.contiguous(), weight.contiguous(), bias)
    else:
        product = order_free_product(rows.double(), weight.double())
        made = (product if bias is None else product + bias.double()).to(rows.dtype)
    return made.view(*inputs.shape[:-1], len(weight))
