"""Metrics of one optimiser step: sums over microbatches, reduced over ranks, divided once at the end."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ngrpo.algo.policy_loss import LossOutput, LossSums
from ngrpo.modeling.policy import TokenScores
from ngrpo.rollout.types import Rollout

Reduce = Callable[[Tensor, str], Tensor]
"""(tensor, "sum" | "max") -> the same over all ranks."""


class StepMetrics:
    """Collects what the microbatches of one optimiser step report.

    The mismatch is |log-prob of the trainer - log-prob of the engine|; it says something about the engine only
    before the first step of a rollout batch, when both hold the same weights.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(7, dtype=torch.float64, device=device)
        self._worst = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, output: LossOutput, scores: TokenScores, rollouts: Sequence[Rollout]) -> None:
        """Adds a microbatch."""
        recorded = torch.cat([r.log_probs for r in rollouts]).to(scores.log_prob.device)
        mismatch = (scores.log_prob - recorded).abs()
        own = torch.stack((output.loss, scores.entropy.sum(), mismatch.sum()))
        self._sums += torch.cat((output.sums.stack(), own)).double()
        self._worst = torch.maximum(self._worst, mismatch.max().double())

    def finish(self, reduce: Reduce) -> dict[str, Tensor]:
        """Returns the metrics over all ranks, by TensorBoard tag."""
        sums = reduce(self._sums, "sum")
        loss = LossSums.unstack(sums[:4])
        tokens = loss.tokens.clamp(min=1)
        return {
            "policy/loss": sums[4],
            "policy/entropy": sums[5] / tokens,
            "rollout/mismatch_mean": sums[6] / tokens,
            "rollout/mismatch_max": reduce(self._worst, "max"),
            **{f"policy/{name}": value for name, value in loss.means().items()},
        }


def average(steps: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the mean of each metric over the optimiser steps of an iteration."""
    return {name: torch.stack([step[name].double() for step in steps]).mean() for name in steps[0]}
