"""Peak memory of the run."""

import resource
import sys
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from ngrpo.training.metric_logging import log_extreme

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class PeakMemory(Callback):
    """Logs ``memory/peak_gib``: the most memory that any process has held so far, in GiB.

    On a GPU that of PyTorch's allocator on the device, elsewhere the resident memory of the process.
    """

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs after each iteration."""
        peak = torch.tensor([peak_bytes(pl_module.device) / 2**30])
        log_extreme(trainer, pl_module, "memory/peak_gib", peak, "max")


def peak_bytes(device: torch.device) -> int:
    """Returns the most bytes held so far on a GPU, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
