"""What exploration did to the rollouts."""

import torch
from lightning import Callback, Trainer
from torch import Tensor
from torch.nn.functional import cosine_similarity

from callbacks.over_ranks import log_extreme, log_means
from ngrpo.data.types import PromptBatch
from ngrpo.module import PolicyOptimization
from ngrpo.rollout.experience import Experience

_CHUNK = 4096
"""Mixtures whose embedding rows are held at once."""


class ExplorationMonitor(Callback):
    """Logs ``exploration/*`` for strategies that mix embeddings.

    Mixtures are measured with the policy's own table: it equals the served one, and the engine may be asleep.
    """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: PolicyOptimization, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        if pl_module.exploration.width == 0:
            return
        values = exploration_values(batch.experience, pl_module.policy_embedding())
        log_means(trainer, pl_module, values)
        log_extreme(trainer, pl_module, "exploration/cosine_min", values["exploration/cosine_mean"], "min")


def exploration_values(experience: Experience, embedding: Tensor) -> dict[str, Tensor]:
    """Returns the values whose means are gated fraction, mixture statistics, and reward with and without mixing.

    The anchor is the first id of a mixture.
    """
    rollouts = experience.rollouts
    ids = torch.cat([r.mixture.ids for r in rollouts])
    weights = torch.cat([r.mixture.weights for r in rollouts])
    slots = [torch.arange(len(r.prompt_ids), len(r.prompt_ids) + r.length) for r in rollouts]
    gated = [torch.isin(at, r.mixture.positions) for at, r in zip(slots, rollouts, strict=True)]
    touched = torch.stack([g.any() for g in gated])
    rewards = experience.rewards.flatten()
    return {
        "exploration/gated_fraction": torch.cat(gated),
        "exploration/cosine_mean": anchor_cosine(ids, weights, embedding),
        "exploration/anchor_weight": weights[:, 0],
        "exploration/reward_mixed": rewards[touched],
        "exploration/reward_plain": rewards[~touched],
    }


def anchor_cosine(ids: Tensor, weights: Tensor, embedding: Tensor) -> Tensor:
    """Returns cos(sum_j w_j E[id_j], E[id_0]) of M mixtures; [M, K], [M, K], [V, d] -> float32 [M]."""
    parts = zip(*(torch.split(part.to(embedding.device), _CHUNK) for part in (ids, weights)), strict=True)
    rows = ((embedding[i.long()].float(), w) for i, w in parts)
    return torch.cat([cosine_similarity((w[..., None] * r).sum(1), r[:, 0], dim=-1) for r, w in rows])
