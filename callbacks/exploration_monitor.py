"""Metrics of what exploration did to the rollouts."""

from collections.abc import Mapping, Sequence
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
from ngrpo.utils.grouped import grouped

_MEASURED = 8192
"""Tokens, and embedding rows of mixtures, that are measured at a time: more launch fewer kernels, and take more memory.
Those rows are 128 MiB in float32 at a width of 4,096."""


class ExplorationMonitor(Callback):
    """Logs ``exploration/*``: what was mixed, a strategy's schedule (``exploration/rate``), and what it has learned.

    Of truncated sampling, the mean and the largest number of ids that tokens were drawn from
    (``exploration/support_mean``, ``exploration/support_max``).

    The schedule's values are those that the rollouts were made with. A learned number is logged by its name as
    ``exploration/learned/NAME``, a larger tensor by the root mean square of its entries.

    Mixtures are measured with the policy's own table: it equals the served one, and the engine may be asleep.
    """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: PolicyOptimization, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        learned = pl_module.weights.learned_exploration()
        changing = scheduled(pl_module.exploration, batch.experience) | learned_sizes(learned)
        pl_module.log_dict(changing, batch_size=1)
        if pl_module.exploration.support:
            sizes = support_sizes(batch.experience)
            log_means(trainer, pl_module, {"exploration/support_mean": sizes})
            log_extreme(trainer, pl_module, "exploration/support_max", sizes, "max")
        if not pl_module.exploration.mixes:
            return
        served = Served(pl_module.weights.embedding(), pl_module.exploration, learned)
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

    ``mixture_size`` counts the ids of a mixture that have weight.

    The anchor is the first id of a mixture, the emitted token where there are no ids. A prefix that was given counts
    nowhere: its mixtures were measured when they were made.
    """
    rollouts = [rollout.without_given_mixtures() for rollout in experience.rollouts]
    slots = [torch.arange(r.tokens - r.generated, r.tokens) for r in rollouts]
    gated = [torch.isin(at, r.mixture.positions) for at, r in zip(slots, rollouts, strict=True)]
    touched = torch.stack([g.any() for g in gated])
    rewards = experience.rewards.flatten()
    return {
        "exploration/gated_fraction": torch.cat(gated),
        "exploration/cosine_mean": torch.cat(
            [anchor_cosines(some, served) for some in grouped(rollouts, _MEASURED, _size)]
        ),
        "exploration/anchor_weight": torch.cat([r.mixture.record.weights[:, :1].flatten() for r in rollouts]),
        "exploration/mixture_size": torch.cat([mixture_sizes(r) for r in rollouts]),
        "exploration/reward_mixed": rewards[touched],
        "exploration/reward_plain": rewards[~touched],
    }


def support_sizes(experience: Experience) -> Tensor:
    """Returns the number of ids that each generated token of truncated sampling was drawn from; float32 [N]."""
    counts = [r.support.counts[r.prefix_length :] for r in experience.rollouts if r.support is not None]
    return torch.cat(counts).float()


def scheduled(strategy: Exploration, experience: Experience) -> dict[str, Tensor]:
    """Returns the values of the strategy's schedule that the rollouts were made with, by tag."""
    values = strategy.schedule(torch.tensor(experience.finished))
    return {f"exploration/{name}": value.float().reshape(()) for name, value in values.items()}


def learned_sizes(learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns a learned number as it is, and the root mean square of a larger tensor, by tag."""
    sizes = {name: value if value.numel() == 1 else value.square().mean().sqrt() for name, value in learned.items()}
    return {f"exploration/learned/{name}": size.reshape(()) for name, size in sizes.items()}


def mixture_sizes(rollout: Rollout) -> Tensor:
    """Returns the number of ids with weight in each mixture of a rollout; int64 [M], [0] where mixtures have no ids."""
    weights = rollout.mixture.record.weights
    return (weights > 0).sum(-1) if weights.shape[1] else weights.new_zeros(0, dtype=torch.int64)


def _size(rollout: Rollout) -> int:
    """Returns the tokens of a rollout, or the embedding rows of its mixtures, M K, where those are more."""
    return max(rollout.tokens, rollout.mixture.record.ids.numel())


@torch.no_grad()
def anchor_cosines(rollouts: Sequence[Rollout], served: Served) -> Tensor:
    """Returns cos(x_t, E[anchor]) of the M mixed positions of rollouts, x_t the vector that was fed; float32 [M]."""
    batch = pack(rollouts).to(served.embedding.device)
    step = batch.mixed_steps()
    context = batch.context(batch.mixed_slots, served.embedding)
    embed = partial(embedding, weight=served.embedding)
    fed = served.exploration.inputs(embed, step, context, served.learned)
    anchors = embed(step.ids[:, 0] if step.ids.shape[1] else step.token)
    return cosine_similarity(fed.float(), anchors.float(), dim=-1)
