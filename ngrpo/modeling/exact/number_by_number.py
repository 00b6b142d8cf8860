"""Functions of single numbers, each number computed as every other is, for a CPU.

PyTorch's kernels take the numbers of a tensor a vector at a time, and those behind the last whole vector one by one, by
other code whose last bits differ: so they depend on where a number stands, and that on the batch. With gaps between
them all numbers are taken one by one.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from ngrpo.modeling.exact.value_and_gradient import value_and_gradient

UNEVEN = frozenset({torch.sigmoid, Tensor.sigmoid, functional.gelu, functional.silu, functional.softplus})
"""Functions of which that is so. Of exponential and logarithm, tanh, sine and cosine both codes are one."""


def number_by_number(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Returns function(inputs), where a number's result depends on the number alone; the gradient is the ordinary one.

    Args:
        function: one of PyTorch's, of each number.
        inputs: of a float dtype; any shape.
    """
    if inputs.device.type != "cpu":
        return function(inputs)
    return value_and_gradient(partial(_with_gaps, function), function, inputs)


def _with_gaps(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    spread = inputs.new_zeros(*inputs.shape, 2)
    spread[..., 0] = inputs
    return function(spread[..., 0])
