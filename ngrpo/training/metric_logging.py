"""Logging of statistics over the rollouts of all ranks."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.distributed import ProcessGroup

from ngrpo.distributed.collectives import ranks

Operation = Literal["sum", "max", "min"]


def over_ranks(trainer: Trainer, value: Tensor, op: Operation) -> Tensor:
    """Reduces a tensor elementwise over the ranks (a collective); float64.

    A sum is one over data ranks, since those of a tensor group count the same rollouts; an extreme is one over all
    processes.
    """
    return _reduced(trainer, value, op, ranks().data_group if op == "sum" else None)


def over_processes(trainer: Trainer, value: Tensor, op: Operation) -> Tensor:
    """Reduces a tensor elementwise over all processes, those of a tensor group too (a collective); float64."""
    return _reduced(trainer, value, op, None)


def _reduced(trainer: Trainer, value: Tensor, op: Operation, group: ProcessGroup | None) -> Tensor:
    # A copy, since the reduction is done in place.
    own = value.to(trainer.strategy.root_device, torch.float64, copy=True)
    return trainer.strategy.reduce(own, group, reduce_op=op)


def log_means(trainer: Trainer, module: LightningModule, values: Mapping[str, Tensor]) -> None:
    """Logs the mean of each tag's values over all ranks.

    NaN are excluded, and a tag of which no rank has a value is not logged. Every rank must have the same tags.

    Args:
        trainer: of the run.
        module: logs.
        values: this rank's values by tag; any shape, dtype and device.
    """
    numbers = [value.double().flatten().cpu() for value in values.values()]
    own = torch.stack([torch.stack((n.nansum(), (~n.isnan()).sum())) for n in numbers])
    totals, counts = over_ranks(trainer, own, "sum").unbind(-1)
    means = dict(zip(values, totals / counts, strict=True))
    module.log_dict({tag: mean for tag, mean in means.items() if not mean.isnan()}, batch_size=1)


def log_extreme(trainer: Trainer, module: LightningModule, tag: str, values: Tensor, op: Literal["max", "min"]) -> None:
    """Logs the largest or smallest of the values of all ranks; nothing if there are none."""
    nothing = values.new_full((1,), math.inf if op == "min" else -math.inf)
    everything = torch.cat((values.flatten(), nothing))
    extreme = over_ranks(trainer, everything.min() if op == "min" else everything.max(), op)
    if extreme.isfinite():
        module.log(tag, extreme, batch_size=1)
