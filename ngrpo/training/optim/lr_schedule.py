"""The learning rate over the optimiser steps of a run, as a factor on its setting."""

import math
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def unchanged(step: int) -> float:
    """1 at every step."""
    return 1.0


def constant(step: int, steps: int, warmup: int = 0) -> float:
    """1 after a linear rise over the first ``warmup`` steps.

    Args:
        step: optimiser steps made so far.
        steps: of the whole run.
        warmup: steps at a lower rate; the first has ``1 / warmup`` of it.
    """
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def cosine(step: int, steps: int, warmup: int = 0, floor: float = 0.0) -> float:
    """Half a cosine from 1 down to ``floor`` at the last step, after a linear rise as in `constant`.

    Args:
        step: optimiser steps made so far.
        steps: of the whole run; a resume with more iterations stretches the curve.
        warmup: steps of the rise.
        floor: the last factor.
    """
    if step < warmup:
        return constant(step, steps, warmup)
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * done))


class ConfiguredRates:
    """The learning rates, decays and so on that this run's settings name; a checkpoint brings those of the run before.

    Args:
        optimizers: as they are made, with their schedules.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._groups = [[_scalars(group) for group in optimizer.param_groups] for optimizer in optimizers]

    def put_back(self, optimizers: Sequence[Optimizer], schedules: Sequence[LambdaLR]) -> None:
        """Gives restored optimisers this run's settings, at the restored step of their schedules."""
        for optimizer, groups in zip(optimizers, self._groups, strict=True):
            for group, configured in zip(optimizer.param_groups, groups, strict=True):
                group.update(configured)
        for schedule in schedules:
            schedule.base_lrs = [group["initial_lr"] for group in schedule.optimizer.param_groups]
            factors = [factor(schedule.last_epoch) for factor in schedule.lr_lambdas]
            for group, base, factor in zip(schedule.optimizer.param_groups, schedule.base_lrs, factors, strict=True):
                group["lr"] = base * factor


def _scalars(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
