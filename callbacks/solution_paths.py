"""The number of distinct solution paths among the rollouts of a group."""

import torch
from lightning import Callback, LightningModule, Trainer

from ngrpo.evaluation.solution_paths import normaliser
from ngrpo.training.metric_logging import log_means
from ngrpo.types.problems import PromptBatch


class SolutionPaths(Callback):
    """Logs ``train/distinct_paths``, the mean number of distinct solution paths in a group.

    Args:
        path: calculations | expression | text, what two equal paths have in common; see
            `ngrpo.evaluation.solution_paths`.
    """

    def __init__(self, path: str) -> None:
        self.path_of = normaliser(path)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        size = batch.experience.group_size
        paths = [self.path_of(text) for text in batch.experience.texts]
        distinct = [len(set(paths[start : start + size])) for start in range(0, len(paths), size)]
        log_means(trainer, pl_module, {"train/distinct_paths": torch.tensor(distinct)})
