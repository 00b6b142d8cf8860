"""The fraction of parameters that an optimiser step changes: on bfloat16 weights small steps are rounded away.

A sample of each parameter stands for all of it: the numbers at a fixed stride, so that a step's cost is negligible.
"""

import logging
import math
from collections.abc import Iterable

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ngrpo.algo.moments import Reduce
from ngrpo.modeling.transfer import onto

log = logging.getLogger(__name__)

_SAMPLED = 4096
_WARN_BELOW = 0.5


class ChangedShare:
    """Compares parameters before and after an optimiser step.

    Args:
        parameters: those that the step may change; of a sharded one, this rank's part.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = [parameter for parameter in parameters if _local(parameter).numel()]
        self._before = self._samples()
        self._weights = onto(self._numbers(), self._before.device)

    @torch.no_grad()
    def after(self, reduce: Reduce) -> Tensor:
        """Returns the share of numbers that are not what they were, each counted once (a collective); float64 scalar.

        Args:
            reduce: over all processes, those of a tensor group too: each of them holds other columns.
        """
        changed = self._weights * (self._samples() != self._before)
        counted = torch.stack((changed.sum(), self._weights.sum()))
        changed, everything = reduce(counted, "sum").unbind()
        return changed / everything

    # All in one tensor: a model has hundreds of parameters, and the device would wait for as many small kernels.
    def _samples(self) -> Tensor:
        return torch.cat([_sample(parameter) for parameter in self._parameters] or [torch.zeros(0)])

    def _numbers(self) -> Tensor:
        """Returns the numbers that each sampled one stands for; float64, on the CPU."""
        sampled = [len(_sample(parameter)) for parameter in self._parameters]
        numbers = [_local(parameter).numel() / _copies(parameter) for parameter in self._parameters]
        each = torch.tensor(numbers, dtype=torch.float64) / torch.tensor(sampled, dtype=torch.float64)
        return each.repeat_interleave(torch.tensor(sampled, dtype=torch.int64))


@torch.no_grad()
def movable_share(optimizer: Optimizer) -> float:
    """Returns the share of this rank's numbers that adding their full learning rate changes.

    The size of a step of Adam; optimisers that scale with the gradient make others.
    """
    moved, numbers = 0.0, 0
    for group in optimizer.param_groups:
        for parameter in filter(lambda parameter: _local(parameter).numel(), group["params"]):
            sample, count = _sample(parameter), _local(parameter).numel()
            moved += float((sample + group["initial_lr"] != sample).double().mean()) * count
            numbers += count
    return moved / max(numbers, 1)


def warn_of_rounding(optimizer: Optimizer, dtype: str) -> None:
    """Says so when most steps would leave most of the parameters as they are."""
    share, rate = movable_share(optimizer), optimizer.param_groups[0]["initial_lr"]
    if rate > 0 and share < _WARN_BELOW:
        log.warning(
            "model.dtype=%s rounds a step of trainer.optimizer.lr=%g away for %.1f %% of the parameters: little will "
            "be learned (policy/changed_share); set model.dtype=float32 with trainer.precision=bf16-mixed, or raise "
            "the learning rate",
            dtype,
            rate,
            100 * (1 - share),
        )


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _copies(parameter: Tensor) -> int:
    """Returns on how many processes the same part of a parameter lies; norms lie on all of a tensor group."""
    processes = distributed.get_world_size() if distributed.is_initialized() else 1
    if not isinstance(parameter, DTensor):
        return processes
    sizes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
    return processes // math.prod(size for size, placement in sizes if not placement.is_replicate())


def _sample(parameter: Tensor) -> Tensor:
    """Returns numbers at an odd stride, which meets every column of a matrix of even width."""
    flat = _local(parameter).detach().reshape(-1)
    return flat[:: flat.numel() // _SAMPLED | 1]
