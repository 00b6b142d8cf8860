"""The memory of an optimiser: its moments, and what a step holds beside them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

MakeOptimizer = Callable[[Iterable[Any]], Optimizer]

_LARGE, _SMALL = 256 * 256, 64
"""Numbers of the parameters that are tried: 8-bit optimisers keep moments of less than 4,096 numbers as they are."""
_QUANTISED_FROM = 4096


@dataclass(frozen=True)
class OptimizerMemory:
    """Bytes that an optimiser holds for each number of a parameter.

    Attributes:
        large: of a parameter of many numbers.
        small: of one of less than 4,096.
        step: more during a step, of all parameters.
    """

    large: float
    small: float
    step: float

    def moments(self, numbers: int) -> int:
        """Returns the bytes for a parameter of so many numbers."""
        return round(numbers * (self.large if numbers >= _QUANTISED_FROM else self.small))


def optimizer_memory(make: MakeOptimizer, dtype: torch.dtype) -> OptimizerMemory:
    """Makes a step on small parameters, and counts what the optimiser keeps.

    PyTorch's own optimisers work on all parameters at once unless they are fused or told otherwise, and hold one more
    number for each meanwhile: AdamW the roots of its second moments.

    Args:
        make: makes the optimiser from parameters.
        dtype: of the parameters.
    """
    large, optimizer = _after_a_step(make, dtype, _LARGE)
    small, _ = _after_a_step(make, dtype, _SMALL)
    at_once = "foreach" in optimizer.defaults and optimizer.defaults["foreach"] is not False
    fused = bool(optimizer.defaults.get("fused"))
    return OptimizerMemory(large, small, dtype.itemsize if at_once and not fused else 0.0)


def _after_a_step(make: MakeOptimizer, dtype: torch.dtype, numbers: int) -> tuple[float, Optimizer]:
    rows = max(1, numbers // 256)
    parameter = nn.Parameter(torch.zeros(rows, numbers // rows, dtype=dtype))
    parameter.grad = torch.ones_like(parameter)
    optimizer = make([parameter])
    with torch.compiler.set_stance("force_eager"):  # torchao compiles its step
        optimizer.step()
    kept = [value for value in optimizer.state[parameter].values() if isinstance(value, Tensor) and value.dim() > 0]
    return sum(map(_bytes, kept)) / numbers, optimizer


def _bytes(tensor: Tensor) -> int:
    """Returns a tensor's bytes; one of a quantised class says what it consists of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return tensor.nbytes
    names, _ = flatten()
    return sum(_bytes(getattr(tensor, name)) for name in names)
