"""The LightningModule of a run: Lightning's hooks."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from lightning import LightningModule
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.distributed.collectives import gathered_everywhere, ranks, set_device_mesh
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.gathering import gathers_once
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.overflow import beyond_range
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.batching import contiguous
from ngrpo.training.critic_update import CriticSettings, CriticUpdate
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.memory_budget import MemoryBudget
from ngrpo.training.metric_logging import over_processes, over_ranks
from ngrpo.training.models import ModelLoader, Models
from ngrpo.training.nonfinite_guard import StepGuard
from ngrpo.training.observed_advantages import AdvantageWarnings
from ngrpo.training.observed_rewards import check_observed
from ngrpo.training.optim.loss_scale import LossScale, loss_scale
from ngrpo.training.optim.lr_schedule import ConfiguredRates, set_rates
from ngrpo.training.optim.offload import HOST, move_state
from ngrpo.training.optim.parameter_groups import critic_groups, policy_groups
from ngrpo.training.policy_update import PolicyUpdate
from ngrpo.training.rounding import warn_of_rounding
from ngrpo.training.sample_preparation import observe_groups, outcome_bonus, prepare_samples
from ngrpo.training.samples import Sample, Update, scored_by_their_own_step
from ngrpo.training.scoring import Scorer
from ngrpo.training.step_metrics import average
from ngrpo.training.token_weights import weighed
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.training.weight_export import WeightExport
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout

T = TypeVar("T")

_ALGORITHM = "algorithm"
_SCALES = "loss_scales"
"""Of a checkpoint."""


class PolicyOptimization(LightningModule):
    """Policy-gradient training on the rollouts of a batch.

    One batch is one iteration: ``algorithm.optimizer_steps`` optimiser steps, each on an equal part of the prompts,
    each accumulated over microbatches. Manual optimisation, since Lightning's automatic one makes one step a batch.
    Runs on one device and, sharded, under ModelParallelStrategy.

    Args:
        source: where the models are loaded from.
        algorithm: advantage, credit, ratio, clip, aggregation, KL, correction.
        exploration: the strategy of the rollouts; scores them.
        optimizer: makes the optimiser from groups of the policy's parameters.
        settings: temperature, microbatches, clipping.
        critic: how to train a critic, where the algorithm's credit needs one.
        guard: decides which steps are finite enough to be made.

    Attributes:
        policy: the model that is trained, from `configure_model` on; a submodule, as the critic is.
        critic: None without one.
        models: both, and the frozen reference, which is no submodule: it stays out of checkpoints.
        weights: takes whole tensors out of the policy.
        budget: most tokens in a forward pass.
        loss_scales: of the policy's update and the critic's.
        forward_passes: on this rank; from the start of the fit on, like the following.
        scorer: scores rollouts.
        policy_update: makes the policy's steps.
        critic_update: makes the critic's; None without one.
    """

    policy: ScoringModel
    critic: ValueModel | None
    models: Models
    weights: WeightExport
    forward_passes: ForwardPasses
    scorer: Scorer
    policy_update: PolicyUpdate
    critic_update: CriticUpdate | None

    def __init__(
        self,
        source: ModelSource,
        algorithm: Algorithm,
        exploration: Exploration,
        optimizer: Callable[[Iterable[Any]], Optimizer],
        settings: UpdateSettings,
        critic: CriticSettings | None = None,
        guard: StepGuard | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.source = source
        self.algorithm = algorithm
        self.exploration = exploration
        self.make_optimizer = optimizer
        self.settings = settings
        self.critic_settings = critic
        self.guard = guard or StepGuard()
        self._warn_of_advantages = AdvantageWarnings(algorithm.unit_spread)
        self.budget = MemoryBudget(settings.microbatch_tokens)
        trained = ["policy"] + ["critic"] * (critic is not None)
        self.loss_scales: dict[str, LossScale] = {name: loss_scale(name, self.computed_in) for name in trained}
        self._configured = False
        self._token_share = 0.0

    def configure_model(self) -> None:
        """Loads the policy, and reference and critic if they are needed; Lightning calls this more than once."""
        if self._configured:
            return
        # Lightning's, with the dimensions data_parallel and tensor_parallel; None with a single process.
        mesh: DeviceMesh | None = getattr(self, "device_mesh", None)
        set_device_mesh(mesh)
        loader = ModelLoader(self.source, self.exploration, self.settings, self.device, mesh)
        self.models = loader.load(self.algorithm.needs_reference, critic=self.critic_settings is not None)
        self.policy, self.critic = self.models.policy, self.models.critic
        self.weights = WeightExport(self.policy, self.source.lora)
        self._configured = True

    def configure_optimizers(self) -> tuple[list[Optimizer], list[LambdaLR]]:
        """Makes the optimisers over policy and critic, and the schedule of the policy's learning rate."""
        policy = self.make_optimizer(policy_groups(self.policy, self.exploration.learning_rates()))
        schedule = LambdaLR(policy, lambda step: self.settings.learning_rate(step, self._token_share))
        optimizers = [policy]
        if self.critic is not None and self.critic_settings is not None:
            optimizers.append(self.critic_settings.optimizer(critic_groups(self.critic)))
        self._rates = ConfiguredRates(optimizers)
        return optimizers, [schedule]

    def on_fit_start(self) -> None:
        """Moves the reference, of which Lightning is unaware, and makes what runs the models on their device."""
        reference = self.models.reference
        if reference is not None and not isinstance(reference, FSDPModule):
            reference.to(HOST if self.settings.offload_reference else self.device)
        self.forward_passes = ForwardPasses(
            device=self.device,
            budget=self.budget,
            mixed_in=self.settings.mixed_in,
            cost=PassCost.of(self.policy.lm.config),
            reduce=partial(over_ranks, self.trainer),
            gather_once=self._gathers_once(),
            share_prompts=self.settings.share_prompts,
        )
        self.scorer = Scorer(
            models=self.models,
            settings=self.settings,
            algorithm=self.algorithm,
            exploration=self.exploration,
            forward_passes=self.forward_passes,
        )
        self.policy_update = self._policy_update()
        self.critic_update = self._critic_update()

    def _gathers_once(self) -> bool:
        """Says whether weights are gathered once a step: where all GPUs have room, which may be of several sizes."""
        wanted, itemsize = self.settings.gather_once, self.computed_in.itemsize
        return all(gathered_everywhere(gathers_once(wanted, self.policy, itemsize, self.device)))

    @property
    def computed_in(self) -> torch.dtype:
        """The dtype of forward and backward passes."""
        return self.settings.mixed_in or DTYPES[self.source.dtype]

    def _policy_update(self) -> PolicyUpdate:
        return PolicyUpdate(
            model=self.policy,
            settings=self.settings,
            algorithm=self.algorithm,
            exploration=self.exploration,
            forward_passes=self.forward_passes,
            loss_scale=self.loss_scales["policy"],
            data_ranks=ranks().data_size,
            schedule=self.lr_schedulers(),
            reduce_everywhere=partial(over_processes, self.trainer),
        )

    def _critic_update(self) -> CriticUpdate | None:
        if self.critic is None or self.critic_settings is None:
            return None
        return CriticUpdate(
            model=self.critic,
            settings=self.critic_settings,
            exploration=self.exploration,
            forward_passes=self.forward_passes,
            loss_scale=self.loss_scales["critic"],
            data_ranks=ranks().data_size,
        )

    def on_train_start(self) -> None:
        """Lets this run's learning rates win over those of the checkpoint that it resumes from; warns of small ones."""
        made = self.optimizers(use_pl_optimizer=False)
        optimizers = made if isinstance(made, list) else [made]
        self._rates.put_back(optimizers, [self.lr_schedulers()])
        warn_of_rounding(optimizers[0], self.source.dtype)

    def transfer_batch_to_device(self, batch: PromptBatch, device: torch.device, dataloader_idx: int) -> PromptBatch:
        """Leaves the batch where it is; microbatches are moved one by one."""
        return batch

    def training_step(self, batch: PromptBatch, batch_idx: int) -> None:
        """Makes the optimiser steps of one rollout batch and logs their metrics."""
        start = time.perf_counter()
        experience = batch.experience
        check_observed(experience.rewards, self.algorithm, self.forward_passes.reduce)
        self.guard.begin(batch.iteration, experience)
        bonus = outcome_bonus(experience, self.algorithm)
        observe_groups(experience, self.algorithm)
        samples, advantages = self.forward_passes.within_memory(
            lambda: prepare_samples(experience, self.algorithm, self.scorer, bonus), experience.rollouts
        )
        self._warn_of_advantages(advantages, self.forward_passes.reduce)
        scored = time.perf_counter()
        before = [update.begin(samples) for update in self._updates]
        minibatches = contiguous(len(samples), self.algorithm.optimizer_steps)
        steps = [
            self._optimizer_step([samples[i] for i in minibatch], first=number == 0)
            for number, minibatch in enumerate(minibatches)
        ]
        seconds = {"time/score_s": scored - start, "time/update_s": time.perf_counter() - scored}
        skipped = {"policy/skipped_steps": float(self.guard.skipped)}
        scales = _merged(scale.metrics() for scale in self.loss_scales.values())
        self.log_dict(_merged(before) | average(steps) | seconds | skipped | scales, batch_size=1)
        batch.update = Update(advantages, self.policy_update.ratios, self.policy_update.entropies)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the loss scales and the state of the algorithm, where there are any."""
        states = {name: scale.state_dict() for name, scale in self.loss_scales.items()}
        if any(states.values()):
            checkpoint[_SCALES] = states
        if state := self.algorithm.state_dict():
            checkpoint[_ALGORITHM] = state

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them back."""
        for name, state in checkpoint.get(_SCALES, {}).items():
            self.loss_scales[name].load_state_dict(state)
        self.algorithm.load_state_dict(checkpoint.get(_ALGORITHM, {}))

    def follow_tokens(self, share: float) -> None:
        """Sets the policy's learning rate by the share of the token limit that is used up.

        Called between iterations, so that all optimiser steps of one go by the tokens of those before it.

        Args:
            share: generated tokens, divided by their limit; 0 without one.
        """
        self._token_share = share
        set_rates(self.lr_schedulers())

    @property
    def _updates(self) -> list[PolicyUpdate | CriticUpdate]:
        """Of the optimisers, in their order."""
        return [update for update in (self.policy_update, self.critic_update) if update is not None]

    def _optimizer_step(self, minibatch: list[Sample], first: bool) -> dict[str, Tensor]:
        """Makes one step of policy and critic on this rank's part of a minibatch; returns their metrics.

        Args:
            minibatch: this rank's part.
            first: of the rollout batch.
        """
        minibatch = weighed(minibatch, self.algorithm, self.forward_passes.reduce)
        if first:
            minibatch = scored_by_their_own_step(minibatch)
        explain = partial(self._overflow, [sample.rollout for sample in minibatch])
        learned = self.algorithm.state_dict
        admits = self.guard.for_minibatch(minibatch, self.forward_passes.reduce, explain, learned)
        pairs = zip(self._updates, self._optimizers(), strict=True)
        return _merged([update.step(minibatch, one, self.manual_backward, admits) for update, one in pairs])

    def _overflow(self, rollouts: Sequence[Rollout], name: str) -> str:
        """Says which module makes a loss infinite, where it is computed in float16 (a collective)."""
        model = {"policy/loss": self.policy, "critic/loss": self.critic}.get(name)
        if model is None or self.computed_in != torch.float16:
            return ""
        named = self.scorer.overflow(model, rollouts)
        return "" if named is None else beyond_range(named)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Brings an optimiser's moments back to the device."""
        if self.settings.offload_optimizer:
            move_state([optimizer], self.device)

    def offload_optimizers(self) -> None:
        """Gives the device memory of the optimisers' moments away until the next step, if that is asked for."""
        if self.settings.offload_optimizer:
            move_state(self._optimizers(), HOST)

    def _optimizers(self) -> list[Optimizer]:
        made = self.optimizers()
        return made if isinstance(made, list) else [made]

    def teardown(self, stage: str) -> None:
        """Lets the moments go, twice the size of the policy, which Lightning would copy to host memory at the end."""
        self.trainer.strategy.optimizers = []


def _merged(metrics: Iterable[dict[str, T]]) -> dict[str, T]:
    return {tag: value for part in metrics for tag, value in part.items()}
