"""Other weights for a moment: every parameter's numbers moved on by one place, and back again."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


@contextmanager
@torch.no_grad()
def rolled(model: nn.Module) -> Iterator[None]:
    """Moves each number of each parameter to the place of the next one, the last to the first, and back afterwards.

    Weights that were not transferred, or in another order, give other log-probs then. Nothing is rounded, so that the
    parameters are exactly as before; beside them there is room for the largest one. Of a sharded parameter each rank
    moves its own part.
    """
    parts = [_local(parameter) for parameter in model.parameters()]
    moved: list[Tensor] = []
    try:
        for part in parts:
            part.copy_(_roll(part, 1))
            moved.append(part)
        yield
    finally:
        for part in moved:
            part.copy_(_roll(part, -1))


def _local(parameter: Tensor) -> Tensor:
    return (parameter.to_local() if isinstance(parameter, DTensor) else parameter).detach()


def _roll(part: Tensor, by: int) -> Tensor:
    return part.flatten().roll(by).view_as(part)
