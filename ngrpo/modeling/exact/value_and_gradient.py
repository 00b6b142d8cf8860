"""The value of one function with the gradient of another: a fixed order of sums forward, ordinary kernels backward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Tensor]


def value_and_gradient(value: Function, differentiable: Function, *tensors: Tensor) -> Tensor:
    """Returns value(*tensors), whose gradient is that of differentiable(*tensors).

    The backward pass computes the second function anew; what is kept are the tensors.

    Args:
        value: computes the result.
        differentiable: the same mathematics, rounded otherwise.
        tensors: the arguments.
    """
    if not torch.is_grad_enabled():
        return value(*tensors)
    made: Tensor = _ValueAndGradient.apply(value, differentiable, *tensors)  # type: ignore[no-untyped-call]
    return made


class _ValueAndGradient(torch.autograd.Function):
    """See `value_and_gradient`."""

    @staticmethod
    def forward(ctx: Any, value: Function, differentiable: Function, *tensors: Tensor) -> Tensor:
        ctx.differentiable = differentiable
        ctx.save_for_backward(*tensors)
        return value(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        saved = zip(ctx.saved_tensors, wanted, strict=True)
        inputs = [tensor.detach().requires_grad_(needed) for tensor, needed in saved]
        with torch.enable_grad():
            output = ctx.differentiable(*inputs)
        found = iter(torch.autograd.grad(output, [one for one in inputs if one.requires_grad], gradient))
        return None, None, *(next(found) if needed else None for needed in wanted)
