"""The learning rate over the optimiser steps of a run, as a factor on its setting."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def unchanged(step: int, token_share: float = 0.0) -> float:
    """1 at every step."""
    return 1.0


@dataclass(frozen=True)
class RunSchedule:
    """A schedule over a run that is limited by iterations and, perhaps, by generated tokens.

    Attributes:
        schedule: one of this module's functions, or another of ``step`` and ``steps``.
        steps: optimiser steps of all iterations.
    """

    schedule: Callable[..., float]
    steps: int

    def __call__(self, step: int, token_share: float = 0.0) -> float:
        """Returns the factor on the learning rate.

        Where tokens are nearer to their limit than steps to theirs, the run is taken to be ``step / token_share`` steps
        long: what is made so far is that share of it. A schedule without a warm-up then goes by tokens alone.

        Args:
            step: optimiser steps made so far.
            token_share: of the token limit, what is used up before this iteration; 0 without a limit.
        """
        by_tokens = token_share * self.steps > step
        return self.schedule(step, steps=step / token_share if by_tokens else self.steps)


def constant(step: int, steps: float, warmup: int = 0) -> float:
    """1 after a linear rise over the first ``warmup`` steps.

    Args:
        step: optimiser steps made so far.
        steps: of the whole run.
        warmup: steps at a lower rate; the first has ``1 / warmup`` of it.
    """
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def cosine(step: int, steps: float, warmup: int = 0, floor: float = 0.0) -> float:
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
            set_rates(schedule)


def set_rates(schedule: LambdaLR) -> None:
    """Gives an optimiser the rates of the step at which its schedule stands."""
    factors = [factor(schedule.last_epoch) for factor in schedule.lr_lambdas]
    for group, base, factor in zip(schedule.optimizer.param_groups, schedule.base_lrs, factors, strict=True):
        group["lr"] = base * factor


def _scalars(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
