"""The root-mean-square norm of Llama and its kin, each row on its own."""

from functools import partial

import torch
from torch import Tensor

from ngrpo.modeling.exact.order_free import order_free_sum
from ngrpo.modeling.exact.value_and_gradient import value_and_gradient


def exact_rms_norm(inputs: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Returns weight x / sqrt(mean x^2 + epsilon), the quotient in float32 and rounded before it is weighted.

    Args:
        inputs: [..., d].
        weight: [d], of the same dtype.
        epsilon: added to the mean.

    Returns:
        [..., d].
    """
    return value_and_gradient(
        partial(_value, epsilon=epsilon), partial(_differentiable, epsilon=epsilon), inputs, weight
    )


def _value(inputs: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    if inputs.is_cuda:
        from ngrpo.modeling.exact.kernels.rows import rms_norm  # Triton is there with a GPU only

        made: Tensor = rms_norm(inputs.reshape(-1, inputs.shape[-1]).contiguous(), weight, epsilon).view(inputs.shape)
        return made
    mean = order_free_sum(inputs.double().square()) / inputs.shape[-1]
    scale = 1.0 / torch.sqrt(mean + epsilon)[..., None]
    return weight * (inputs.double() * scale).to(inputs.dtype)


def _differentiable(inputs: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    numbers = inputs.float()
    normal = numbers * torch.rsqrt(numbers.square().mean(-1, keepdim=True) + epsilon)
    return weight * normal.to(inputs.dtype)
