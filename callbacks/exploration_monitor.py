"""What exploration did to the rollouts."""

import math

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.functional import cosine_similarity

from ngrpo.data.types import PromptBatch
from ngrpo.rollout.experience import Experience
from ngrpo.rollout.worker import RolloutWorker


class ExplorationMonitor(Callback):
    """Logs ``exploration/*`` for strategies that mix embeddings.

    Args:
        worker: owns the served embedding table, which the mixtures are measured with.
    """

    def __init__(self, worker: RolloutWorker) -> None:
        self.worker = worker

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        if self.worker.exploration.width == 0:
            return
        metrics = exploration_metrics(batch.experience, self.worker.engine.embedding())
        pl_module.log_dict(metrics, sync_dist=trainer.world_size > 1, batch_size=1)


def exploration_metrics(experience: Experience, embedding: Tensor) -> dict[str, float]:
    """Returns the gated fraction, mixture statistics, and the reward with and without mixing.

    The anchor is the first id of a mixture. Means over nothing are NaN.
    """
    mixtures = [r.mixture for r in experience.rollouts]
    ids = torch.cat([m.ids for m in mixtures]).long()
    weights = torch.cat([m.weights for m in mixtures])
    rows = embedding[ids.to(embedding.device)].float()
    mixed = (weights.to(rows.device)[..., None] * rows).sum(1)
    cosine = cosine_similarity(mixed, rows[:, 0], dim=-1)
    touched = torch.tensor([len(m.positions) > 0 for m in mixtures])
    rewards = experience.rewards.flatten()
    return {
        "exploration/gated_fraction": len(ids) / experience.tokens,
        "exploration/cosine_mean": float(cosine.mean()),
        "exploration/cosine_min": float(cosine.min()) if len(cosine) else math.nan,
        "exploration/anchor_weight": float(weights[:, 0].mean()),
        "exploration/reward_mixed": float(rewards[touched].nanmean()),
        "exploration/reward_plain": float(rewards[~touched].nanmean()),
    }
