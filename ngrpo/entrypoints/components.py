"""The parts of a run that the settings name, before a file of model or data has been read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig
from torch.optim import Optimizer

from ngrpo.algo.best import with_best
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.config.instantiate import build, build_kind
from ngrpo.data.curriculum import Curriculum
from ngrpo.entrypoints.trainer import process_count
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.isolation.custom import IsolatedReward, IsolatedTerm, build_reward
from ngrpo.rewards.protocol import Reward
from ngrpo.rewards.terms.base import WeightedTerm, bounds_of
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.training.critic_update import CriticSettings
from ngrpo.training.optim.lr_schedule import RunSchedule
from ngrpo.training.update_settings import UpdateSettings


@dataclass(frozen=True)
class Components:
    """What the groups of a configuration build; each class has checked its own values.

    Attributes:
        source: the model that training starts from.
        algorithm: the objective.
        exploration: the strategy of the training rollouts.
        reward: scores responses.
        terms: what is added to the reward in training.
        selection: which groups of rollouts are trained on.
        critic: None trains none.
        rollout: how many rollouts, how long, how early.
        engine: makes the rollouts; not started.
        curriculum: None trains on every problem.
        optimizer: makes the policy's optimiser from its parameters.
        update: how an optimiser step is made.
        processes: of the training, over all machines.
        tensor_parallel_size: processes that hold one model between them.
    """

    source: ModelSource
    algorithm: Algorithm
    exploration: Exploration
    reward: Reward
    terms: list[WeightedTerm]
    selection: DynamicSampling
    critic: CriticSettings | None
    rollout: RolloutSettings
    engine: RolloutEngine
    curriculum: Curriculum | None
    optimizer: Callable[[Iterable[Any]], Optimizer]
    update: UpdateSettings
    processes: int
    tensor_parallel_size: int

    @property
    def ranks(self) -> int:
        """Data-parallel ranks: processes, or groups of them, that train on rollouts of their own."""
        return self.processes // self.tensor_parallel_size

    @property
    def requests(self) -> int:
        """Rollouts of a batch on one rank, which its engine makes at once."""
        return self.algorithm.prompts_per_batch // self.ranks * self.rollout.group_size


def build_components(config: DictConfig) -> Components:
    """Builds the parts of a checked configuration; reads no weights, tokenizer or data.

    Args:
        config: composed from ``conf/train.yaml``.

    Raises:
        SettingError: one of them refuses its settings.
    """
    source = build(config.model)
    algorithm, exploration = build_kind(Algorithm, config.algo), build_kind(Exploration, config.exploration)
    limit_s = config.custom_reward_timeout_s
    terms = [
        WeightedTerm(str(name), node.weight, build_reward(f"reward_terms.{name}", node.term, limit_s, IsolatedTerm))
        for name, node in config.reward_terms.items()
    ]
    reward = build_reward("reward", config.reward, limit_s, IsolatedReward)
    settings = config.rollout
    return Components(
        source=source,
        algorithm=with_best(algorithm, bounds_of(reward, terms)),
        exploration=exploration,
        reward=reward,
        terms=terms,
        selection=build(config.selection),
        critic=_optional(config.critic),
        rollout=RolloutSettings(
            settings.group_size,
            settings.max_new_tokens,
            settings.temperature,
            settings.ahead,
            settings.exact,
            build(settings.scheduler),
        ),
        engine=build(settings.engine, model=source, exploration=exploration, exact=settings.exact),
        curriculum=_optional(config.data.get("curriculum")),
        optimizer=build(config.trainer.optimizer),
        update=_update_settings(config, algorithm.optimizer_steps),
        processes=process_count(config.trainer),
        tensor_parallel_size=config.trainer.tensor_parallel_size,
    )


def _update_settings(config: DictConfig, optimizer_steps: int) -> UpdateSettings:
    trainer = config.trainer
    return UpdateSettings(
        temperature=config.rollout.temperature,
        microbatch_tokens=trainer.microbatch_tokens,
        max_grad_norm=trainer.max_grad_norm,
        precision=trainer.precision,
        learning_rate=RunSchedule(build(trainer.schedule), trainer.iterations * optimizer_steps),
        head_rows=trainer.head_rows,
        offload_reference=trainer.offload_reference,
        offload_optimizer=trainer.offload_optimizer,
        gather_once=trainer.gather_once,
        share_prompts=trainer.share_prompts,
        exact=config.rollout.exact,
    )


def _optional(node: Any) -> Any:
    """Returns what a node builds; None for a setting that is null or, in a user's own part, something else."""
    return build(node) if isinstance(node, DictConfig) and "_target_" in node else None
