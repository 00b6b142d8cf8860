"""Makes one optimiser step on recorded rollouts and writes its whole gradient; also run under torchrun.

torchrun --nproc-per-node 2 tests/helpers/update_probe.py CASE.pt GRADIENT.pt
"""

import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.utils.data import DataLoader

from ngrpo.algo import aggregate, kl, ratio
from ngrpo.algo.advantage import group_standardised, raw
from ngrpo.algo.clip import clipped_surrogate, unclipped
from ngrpo.algo.consistency import ConsistencyBlend
from ngrpo.algo.correction import Truncate
from ngrpo.algo.credit import DiscountedReturns, GeneralisedAdvantage
from ngrpo.algo.first_token import FirstTokenOnce
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import ClipCov, EntropyShaped, ForkingTokens, KlCov
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.sharding import full
from ngrpo.training.critic_update import CriticSettings
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout, StopReason

ALGORITHMS = {
    "grpo": Algorithm(
        group_standardised,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.token_mean,
        kl.k3,
        kl_coef=0.1,
    ),
    "gspo": Algorithm(
        group_standardised,
        ratio.sequence,
        partial(clipped_surrogate, low=3e-4, high=4e-4),
        aggregate.seq_mean_token_mean,
        kl.k3,
    ),
    # By token, whitened over the batch, with everything that may be switched on.
    "reinforce_pp": Algorithm(
        raw,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.token_mean,
        kl.k3,
        DiscountedReturns(gamma=0.9),
        Truncate("sequence", cap=1.05),
        kl_coef=0.1,
        kl_in="reward",
        entropy_coef=0.05,
    ),
    "ppo": Algorithm(
        raw,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.token_mean,
        kl.k3,
        GeneralisedAdvantage(gamma=0.95, lam=0.9),
    ),
    # Two channels, one of them from statistics over the prompts of the batch.
    "copo": Algorithm(
        group_standardised,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.seq_mean_token_mean,
        kl.k3,
        ConsistencyBlend(gamma=2.0, rho=1.0),
    ),
    # Weights of tokens by statistics over the whole optimiser batch.
    "clip_cov": Algorithm(
        group_standardised,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.token_mean,
        kl.k3,
        token_weight=ClipCov(share=0.2, low=0.0, high=9.0),
    ),
    "forking": Algorithm(
        group_standardised,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.seq_mean_token_mean,
        kl.k3,
        token_weight=ForkingTokens(share=0.3),
    ),
    "kl_cov": Algorithm(
        group_standardised, ratio.token, unclipped, aggregate.token_mean, kl.k3, token_weight=KlCov(share=0.3)
    ),
    "entropy_shaped": Algorithm(
        group_standardised,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.28),
        aggregate.token_mean,
        kl.k3,
        token_weight=EntropyShaped(),
    ),
    "first_token": Algorithm(
        group_standardised, ratio.token, unclipped, aggregate.token_mean, kl.k3, FirstTokenOnce(), truncated="zero"
    ),
}

TOLERANCE = 1e-5
"""Most of the `distance` of two gradients that are the same but for rounding."""
HEAD = 0.1
"""Every weight of the critic's head."""
CRITIC = CriticSettings(partial(torch.optim.SGD, lr=0.0), max_grad_norm=1e9)


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Relative distance of two gradients, in the norm over all parameters."""
    difference = sum(float((a[name] - b[name]).double().square().sum()) for name in a)
    return (difference / sum(float(a[name].double().square().sum()) for name in a)) ** 0.5


@dataclass(frozen=True)
class Case:
    """What a step is made from; P prompts with G rollouts each, ``keys`` their prompts', group by group by default."""

    model_path: str
    algorithm: str
    temperature: float
    microbatch_tokens: int
    rollouts: list[Rollout]
    rewards: torch.Tensor
    keys: list[int] | None = None
    exploration: Exploration = NeighborMixing()
    precision: str = "32-true"
    source: dict[str, Any] = field(default_factory=dict)
    gather_once: bool = False
    share_prompts: bool = True
    optimizer_steps: int = 1
    lr: float = 0.0


class GivenExperience:
    """A rank's share of a case, with what the training step reads of an Experience."""

    def __init__(self, case: Case, rank: int, ranks: int) -> None:
        prompts = len(case.rewards) // ranks
        size = case.rewards.shape[1]
        own = slice(rank * prompts * size, (rank + 1) * prompts * size)
        self.rewards = case.rewards[rank * prompts : (rank + 1) * prompts]
        self.rollouts = case.rollouts[own]
        self.keys = (case.keys or [i // size for i in range(len(case.rollouts))])[own]
        self.infinite = self.rewards.flatten().isinf()
        # The first token of a response stands for its answer.
        self.truncated = torch.tensor([r.stop_reason is StopReason.LENGTH for r in self.rollouts])
        self.outcomes = torch.tensor([int(r.response_ids[0]) % 3 for r in self.rollouts])


class KeepGradient(Callback):
    """Keeps the last step's gradient: of the policy by the names of transformers, of the critic by the module's."""

    def __init__(self) -> None:
        self.gradient: dict[str, torch.Tensor] = {}

    def on_train_start(self, trainer, pl_module) -> None:
        if pl_module.critic is not None:  # a head of zeros gives the body no gradient
            torch.nn.init.constant_(pl_module.critic.head.weight, HEAD)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, p in pl_module.named_parameters():
            if id(p) in stepped:
                self.gradient[name.removeprefix("policy.").removeprefix("lm.")] = full(p.grad).detach().clone()
        trainer.should_stop = True


def gradient(case: Case, *callbacks: Callback, ranks: int = 1) -> dict[str, torch.Tensor]:
    """Returns the gradient that the optimiser sees, by parameter."""
    keep = KeepGradient()
    strategy = ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1) if ranks > 1 else "auto"
    trainer = Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy=strategy,
        max_epochs=1,
        callbacks=[keep, *callbacks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    module = PolicyOptimization(
        ModelSource(case.model_path, **case.source),
        replace(ALGORITHMS[case.algorithm], optimizer_steps=case.optimizer_steps),
        case.exploration,
        partial(torch.optim.SGD, lr=case.lr),
        UpdateSettings(
            temperature=case.temperature,
            microbatch_tokens=case.microbatch_tokens,
            max_grad_norm=1e9,
            precision=case.precision,
            gather_once=case.gather_once,
            share_prompts=case.share_prompts,
        ),
        CRITIC if ALGORITHMS[case.algorithm].credit.needs_values else None,
    )
    batch = PromptBatch([], 0, 0)
    batch.experience = GivenExperience(case, trainer.global_rank, ranks)
    trainer.fit(module, DataLoader([batch], batch_size=None))
    # Whatever was trained on where, what was assigned is told of the rank's own rollouts.
    own = [rollout.length for rollout in batch.experience.rollouts]
    assert [advantage.shape[-1] for advantage in batch.update.advantages] == own
    return keep.gradient


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = gradient(torch.load(sys.argv[1], weights_only=False), ranks=2)
    if torch.distributed.get_rank() == 0:
        torch.save(made, Path(sys.argv[2]))
