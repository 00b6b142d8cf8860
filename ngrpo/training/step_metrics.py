"""Metrics of one optimiser step: sums over microbatches, reduced over ranks, divided once at the end."""

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from ngrpo.algo.loss_terms import LossOutput, LossSums
from ngrpo.algo.moments import Reduce


class StepMetrics:
    """Collects what the microbatches of one optimiser step report."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(1 + len(fields(LossSums)), dtype=torch.float64, device=device)
        self._worst = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, output: LossOutput) -> None:
        """Adds a microbatch."""
        self._sums += torch.cat((output.loss[None], output.sums.stack())).double()
        self._worst = torch.maximum(self._worst, output.mismatch_max.double())

    def finish(self, reduce: Reduce) -> dict[str, Tensor]:
        """Returns the metrics over all ranks, by TensorBoard tag."""
        sums = reduce(self._sums, "sum")
        return {
            "policy/loss": sums[0],
            "rollout/mismatch_max": reduce(self._worst, "max"),
            **LossSums.unstack(sums[1:]).means(),
        }


def average(steps: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the mean of each metric over the optimiser steps of an iteration, the largest of a ``_max``.

    Steps in which all samples were excluded have no values to average; they count only if there is no other.
    """
    made = [step for step in steps if step["policy/sequences"] > 0] or steps
    stacked = {name: torch.stack([step[name].double() for step in made]) for name in made[0]}
    return {name: values.max() if name.endswith("_max") else values.mean() for name, values in stacked.items()}
