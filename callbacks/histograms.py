"""Distributions: advantages, importance ratios, response lengths."""

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.loggers.media import Histogram
from ngrpo.loggers.media_adapters import log_media
from ngrpo.types.problems import PromptBatch


class Histograms(Callback):
    """Writes ``policy/advantages``, ``policy/ratios`` and ``rollout/lengths`` of rank 0 every few iterations.

    Advantages are a token's, summed over their channels; ratios are those of all optimiser steps. Responses that are
    left out of the loss count in the lengths only.

    Args:
        every: iterations between histograms.
    """

    def __init__(self, every: int = 10) -> None:
        if every < 1:
            raise SettingError(
                f"callbacks.histograms.every={every} must be 1 or more; set callbacks.histograms=null to write none."
            )
        self.every = every

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Writes on rank 0."""
        if batch.iteration % self.every or not trainer.is_global_zero:
            return
        media = {tag: Histogram.of(numbers) for tag, numbers in distributions(batch).items()}
        log_media(trainer, media, batch.iteration)


def distributions(batch: PromptBatch) -> dict[str, Tensor]:
    """Returns the values to draw by tag, float32 on the CPU; those without a value are left out."""
    values = {
        "policy/advantages": torch.cat([advantage.sum(0) for advantage in batch.update.advantages]),
        "policy/ratios": torch.cat([ratios.float().cpu() for ratios in batch.update.ratios]),
        "rollout/lengths": torch.tensor([float(rollout.generated) for rollout in batch.experience.rollouts]),
    }
    known = {tag: numbers[numbers.isfinite()] for tag, numbers in values.items()}
    return {tag: numbers for tag, numbers in known.items() if len(numbers)}
