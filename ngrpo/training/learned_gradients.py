"""The warning of learned parameters of a strategy that get no gradient."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ngrpo.algo.moments import Reduce
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.policy import LearnedParameters
from ngrpo.types.rollouts import Rollout

log = logging.getLogger(__name__)


class LearnedGradients:
    """Looks once at the gradients of what a strategy learns: at the first step that could have given them one.

    Args:
        learned: the strategy's parameters, as the policy holds them; of a sharded one, this rank's part.
        exploration: the strategy.
    """

    def __init__(self, learned: LearnedParameters, exploration: Exploration) -> None:
        self._parameters = dict(learned.named_parameters())
        self._strategy = type(exploration).__name__
        self._looked = not self._parameters

    def look(self, rollouts: Sequence[Rollout], norm: Tensor, reduce: Reduce) -> None:
        """Warns of each parameter whose gradient is missing or 0 on all ranks (a collective).

        Args:
            rollouts: that this rank's gradients were made from.
            norm: of the whole gradient, the same on all ranks; where it is 0, nothing was to be learned.
            reduce: over all processes.
        """
        if self._looked or not float(norm) > 0:
            return
        mixed = sum(len(rollout.mixture.positions) for rollout in rollouts)
        sizes = [_size(parameter) for parameter in self._parameters.values()]
        positions, *totals = reduce(torch.tensor([float(mixed), *sizes], dtype=torch.float64), "sum").tolist()
        if positions == 0:
            return
        self._looked = True
        for name, total in zip(self._parameters, totals, strict=True):
            if total == 0:
                log.warning(
                    "the parameter %s of the strategy %s got no gradient in an optimiser step with mixed positions, so "
                    "it is not learned: use parameters[%r] in inputs(), without detach, item or no_grad",
                    name,
                    self._strategy,
                    name,
                )


def _size(parameter: Tensor) -> float:
    """Returns the largest magnitude in this rank's part of the gradient; 0 without one."""
    gradient = parameter.grad
    if gradient is None:
        return 0.0
    local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
    return float(local.abs().max()) if local.numel() else 0.0
