"""Metrics of what exploration did to the rollouts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from lightning import Callback, Trainer
from torch import Tensor
from torch.nn.functional import cosine_similarity, embedding

from ngrpo.exploration.base import Exploration
from ngrpo.modeling.packing import pack
from ngrpo.training.metric_logging import log_extreme, log_means
from ngrpo.training.module import PolicyOptimization
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout


class ExplorationMonitor(Callback):
    """Logs ``exploration/*`` for strategies that mix embeddings.

    Mixtures are measured with the policy's own table: it equals the served one, and the engine may be asleep.
    """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: PolicyOptimization, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        if not pl_module.exploration.mixes:
            return
        served = Served(pl_module.weights.embedding(), pl_module.exploration, pl_module.weights.learned_exploration())
        values = exploration_values(batch.experience, served)
        log_means(trainer, pl_module, values)
        log_extreme(trainer, pl_module, "exploration/cosine_min", values["exploration/cosine_mean"], "min")


@dataclass(frozen=True)
class Served:
    """What the vectors of mixed positions were made with.

    Attributes:
        embedding: the input embedding; [V, d].
        exploration: the strategy.
        learned: its learned parameters.
    """

    embedding: Tensor
    exploration: Exploration
    learned: Mapping[str, Tensor]


def exploration_values(experience: Experience, served: Served) -> dict[str, Tensor]:
    """Returns the values whose means are gated fraction, mixture statistics, and reward with and without mixing.

    The anchor is the first id of a mixture, the emitted token where there are no ids.
    """
    rollouts = experience.rollouts
    slots = [torch.arange(len(r.prompt_ids), len(r.prompt_ids) + r.length) for r in rollouts]
    gated = [torch.isin(at, r.mixture.positions) for at, r in zip(slots, rollouts, strict=True)]
    touched = torch.stack([g.any() for g in gated])
    rewards = experience.rewards.flatten()
    return {
        "exploration/gated_fraction": torch.cat(gated),
        "exploration/cosine_mean": torch.cat([anchor_cosine(r, served) for r in rollouts]),
        "exploration/anchor_weight": torch.cat([r.mixture.record.weights[:, :1].flatten() for r in rollouts]),
        "exploration/reward_mixed": rewards[touched],
        "exploration/reward_plain": rewards[~touched],
    }


@torch.no_grad()
def anchor_cosine(rollout: Rollout, served: Served) -> Tensor:
    """Returns cos(x_t, E[anchor]) of the M mixed positions of a rollout, x_t the vector that was fed; float32 [M]."""
    batch = pack([rollout]).to(served.embedding.device)
    step = batch.mixed_steps()
    context = batch.context(batch.mixed_slots, served.embedding)
    embed = partial(embedding, weight=served.embedding)
    fed = served.exploration.inputs(embed, step, context, served.learned)
    anchors = embed(step.ids[:, 0] if step.ids.shape[1] else step.token)
    return cosine_similarity(fed.float(), anchors.float(), dim=-1)
