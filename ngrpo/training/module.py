"""The LightningModule: policy and reference, and one rollout batch's optimiser steps."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from lightning import LightningModule
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.distributed.collectives import arrange, gathered, ranks
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.embedding_scale import check_embedding_scale
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.lora import adapter_off, add_adapter
from ngrpo.modeling.packing import PackedBatch
from ngrpo.modeling.policy import HEAD_ROWS, ScoringModel, TokenScores
from ngrpo.modeling.precision import round_parameters
from ngrpo.modeling.sharding import full, named_learned, named_weights, shard
from ngrpo.training.batching import contiguous
from ngrpo.training.critic_update import CriticSettings, CriticUpdate
from ngrpo.training.forward import Passes
from ngrpo.training.load_balancing import Placement
from ngrpo.training.memory_budget import MemoryBudget
from ngrpo.training.nonfinite_guard import StepGuard
from ngrpo.training.optim.grad_norm import by_mesh, clip
from ngrpo.training.optim.lr_schedule import ConfiguredRates, unchanged
from ngrpo.training.optim.offload import HOST, move_state, visiting
from ngrpo.training.rounding import ChangedShare, warn_of_rounding
from ngrpo.training.samples import Constants, Sample, Update, assigned, by_key, loss_inputs, scored_batch, shares
from ngrpo.training.step_metrics import StepMetrics, average
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout

Model = TypeVar("Model", bound=ScoringModel)

Result = TypeVar("Result")

_MUST_BE_FINITE = ("policy/loss", "policy/grad_norm")
_PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class UpdateSettings:
    """How an optimiser step is made.

    Attributes:
        temperature: tau of the rollouts; the log-probs are those at tau.
        microbatch_tokens: most tokens (prompts included) in one forward pass.
        max_grad_norm: gradient norms above are scaled down to it.
        learning_rate: optimiser steps made so far -> factor on the policy's learning rate; see
            `ngrpo.training.optim.lr_schedule`.
        precision: "32-true" computes in the dtype of the parameters; "bf16-mixed" computes in bfloat16 and keeps
            parameters, gradients and optimiser in theirs (`ngrpo.modeling.precision`). At a learning rate of 1e-6
            parameters must be float32: bfloat16 ones round most updates away.
        head_rows: most tokens whose logits over the vocabulary are held at a time.
        offload_reference: keep the reference in host memory outside its passes.
        offload_optimizer: keep the optimisers' moments in host memory from the end of an update to the first step of
            the next.
        gather_once: sharded models gather weights and sum gradients once an optimiser step, not once a microbatch.
    """

    temperature: float = 1.0
    microbatch_tokens: int = 8192
    max_grad_norm: float = 1.0
    precision: str = "32-true"
    learning_rate: Callable[[int], float] = unchanged
    head_rows: int = HEAD_ROWS
    offload_reference: bool = False
    offload_optimizer: bool = False
    gather_once: bool = False

    @property
    def mixed(self) -> bool:
        """Whether computation is in another dtype than parameters."""
        return self.precision == "bf16-mixed"

    def __post_init__(self) -> None:
        for name in ("microbatch_tokens", "max_grad_norm", "head_rows"):
            if not getattr(self, name) > 0:
                raise SettingError(f"trainer.{name}={getattr(self, name)} must be positive; raise it.")
        if self.precision not in _PRECISIONS:
            raise SettingError(
                f"trainer.precision={self.precision} is not known; choose {' or '.join(_PRECISIONS)} (model.dtype "
                "sets the dtype of the parameters)."
            )


class PolicyOptimization(LightningModule):
    """Policy-gradient training on the rollouts that a batch carries.

    One batch is one iteration: ``algorithm.optimizer_steps`` optimiser steps, each on an equal share of the
    prompts, each accumulated over microbatches. Manual optimisation, since Lightning's automatic one makes one
    step a batch. Runs on one device and, sharded, under ModelParallelStrategy.

    Args:
        source: where policy and reference are loaded from.
        algorithm: advantage, credit, ratio, clip, aggregation, KL, correction.
        exploration: the strategy of the rollouts; scores them.
        optimizer: makes the optimiser from the policy's parameters, or from groups of them.
        settings: temperature, microbatches, clipping.
        critic: how to train a critic, where the algorithm's credit needs one.
        guard: decides which steps are finite enough to be made.
    """

    policy: ScoringModel
    reference: ScoringModel | None
    critic: ValueModel | None

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
        self.budget = MemoryBudget(settings.microbatch_tokens)
        self._configured = False
        self._ratios: list[Tensor] = []
        self._entropies: dict[int, Tensor] = {}

    def configure_model(self) -> None:
        """Loads the policy, and reference and critic if they are needed; Lightning calls this more than once."""
        if self._configured:
            return
        arrange(self._mesh)
        checkpointing = self.source.checkpointing
        self.policy = self._load(ScoringModel, checkpointing)
        self.critic = self._load(ValueModel, checkpointing) if self.critic_settings is not None else None
        # Not a submodule: the frozen reference stays out of checkpoints and of the optimiser.
        wanted = self.algorithm.needs_reference and not self._adapter_is_the_difference
        reference = self._load(ScoringModel, "off", frozen=True) if wanted else None
        object.__setattr__(self, "reference", reference)
        self._configured = True

    @property
    def _adapter_is_the_difference(self) -> bool:
        """Whether the policy without its adapter is the reference: both start from the same weights."""
        return self.source.lora is not None and not self.exploration.learning_rates()

    def _load(self, kind: type[Model], checkpointing: str, frozen: bool = False) -> Model:
        learned = load_learned(self.source, self.exploration)
        model = kind(self.source.load(), learned).requires_grad_(not frozen)
        check_embedding_scale(model.lm, self.exploration, self.source.path)
        if self.source.lora is not None and kind is ScoringModel and not frozen:
            add_adapter(model.lm, self.source.lora)
        model = model.to(self.device)
        model.head_rows = self.settings.head_rows
        if frozen and self.settings.mixed:
            round_parameters(model)
        prepare_layers(model.lm.base_model.layers, checkpointing, self.source.compile)
        if self._mesh is None:
            return model
        return shard(model, self._mesh, self.settings.mixed, frozen and self.settings.offload_reference)

    @property
    def _mesh(self) -> DeviceMesh | None:
        """Lightning's, with the dimensions ``data_parallel`` and ``tensor_parallel``; None with a single process."""
        return getattr(self, "device_mesh", None)

    def configure_optimizers(self) -> tuple[list[Optimizer], list[LambdaLR]]:
        """Makes the optimisers over policy and critic, and the learning rate's course for the policy.

        Learned exploration has learning rates of its own.
        """
        rates = self.exploration.learning_rates()
        learned = self.policy.learned.named_parameters()
        groups = [{"params": [parameter], "lr": rates[name]} for name, parameter in learned]
        model = by_mesh(parameter for parameter in self.policy.lm.parameters() if parameter.requires_grad)
        policy = self.make_optimizer([*({"params": part} for part in model), *groups])
        schedule = LambdaLR(policy, self.settings.learning_rate)
        made = [policy]
        if self.critic is not None and self.critic_settings is not None:
            critic = [{"params": part} for part in by_mesh(self.critic.parameters())]
            made.append(self.critic_settings.optimizer(critic))
        self._rates = ConfiguredRates(made)
        return made, [schedule]

    def on_train_start(self) -> None:
        """Lets this run's learning rates win over those of the checkpoint that it goes on from; warns of small ones."""
        made = self.optimizers(use_pl_optimizer=False)
        optimizers = made if isinstance(made, list) else [made]
        self._rates.put_back(optimizers, [self.lr_schedulers()])
        warn_of_rounding(optimizers[0], self.source.dtype)

    def on_fit_start(self) -> None:
        """Moves the reference, which Lightning does not know of."""
        if self.reference is not None and not isinstance(self.reference, FSDPModule):
            self.reference.to(HOST if self.settings.offload_reference else self.device)

    def teardown(self, stage: str) -> None:
        """Lets the moments go, twice the size of the policy, which Lightning would copy to host memory at the end."""
        self.trainer.strategy.optimizers = []

    def offload_optimizers(self) -> None:
        """Gives the device memory of the optimisers' moments away until the next step, if that is asked for."""
        if self.settings.offload_optimizer:
            move_state(self._optimizers(), HOST)

    def _optimizers(self) -> list[Optimizer]:
        """Returns the policy's and, with a critic, the critic's."""
        made = self.optimizers()
        return made if isinstance(made, list) else [made]

    def transfer_batch_to_device(self, batch: PromptBatch, device: torch.device, dataloader_idx: int) -> PromptBatch:
        """Leaves the batch where it is; microbatches are moved one by one."""
        return batch

    def policy_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the policy's whole weights by transformers name (a collective when sharded)."""
        return named_weights(self.policy, self.source.lora)

    def policy_embedding(self) -> Tensor:
        """Returns the policy's whole input embedding table, [V, d] (a collective when sharded)."""
        return full(self.policy.lm.get_input_embeddings().weight.detach())

    def learned_exploration(self) -> dict[str, Tensor]:
        """Returns the strategy's learned parameters, whole (a collective when sharded)."""
        return named_learned(self.policy)

    @property
    def passes(self) -> Passes:
        """How models are run on rollouts here."""
        cost = PassCost.of(self.policy.lm.config)
        settings = self.settings
        return Passes(self.device, self.budget.tokens, settings.mixed, cost, self._reduce, settings.gather_once)

    def training_step(self, batch: PromptBatch, batch_idx: int) -> None:
        """Makes the optimiser steps of one rollout batch and logs their metrics."""
        start = time.perf_counter()
        experience = batch.experience
        spoiled = self._begin(batch.iteration, experience)
        samples, advantages = self._within_memory(lambda: self._samples(experience), experience.rollouts)
        scored = time.perf_counter()
        self._ratios, self._entropies = [], {}
        before = self._critic_update().before(samples) if self.critic is not None else {}
        parts = [[samples[i] for i in part] for part in contiguous(len(samples), self.algorithm.optimizer_steps)]
        steps = [self._optimizer_steps(part, self._anywhere(part, spoiled)) for part in parts]
        seconds = {"time/score_s": scored - start, "time/update_s": time.perf_counter() - scored}
        skipped = {"policy/skipped_steps": float(self.guard.skipped)}
        self.log_dict(average(steps) | before | seconds | skipped, batch_size=1)
        batch.update = Update(advantages, self._ratios, self._entropies)

    def _begin(self, iteration: int, experience: Experience) -> frozenset[int]:
        """Tells the guard whose rollouts they are; returns the keys of those with an infinite reward (a collective).

        Those of all ranks, since rollouts change ranks before they are trained on.
        """
        rollouts, infinite = experience.rollouts, experience.infinite.tolist()
        own = [(r.key, problem, bad) for r, problem, bad in zip(rollouts, experience.keys, infinite, strict=True)]
        everyone = [one for rank in gathered(own) for one in rank]
        self.guard.begin(iteration, {key: problem for key, problem, _ in everyone})
        return frozenset(key for key, _, bad in everyone if bad)

    def _anywhere(self, samples: Sequence[Sample], keys: frozenset[int]) -> bool:
        """Says whether a rank has a sample of these keys (a collective)."""
        return bool(self._reduce(float(any(sample.rollout.key in keys for sample in samples)), "max"))

    def _within_memory(
        self, work: Callable[[], Result], rollouts: Sequence[Rollout], clear: Callable[[], None] = lambda: None
    ) -> Result:
        """Makes passes over rollouts, in smaller microbatches if memory runs out."""
        longest = max(len(rollout.prompt_ids) + rollout.length for rollout in rollouts)
        return self.budget.fit(work, clear, longest, self.trainer.world_size)

    def _samples(self, experience: Experience) -> tuple[list[Sample], list[Tensor]]:
        """Shares the rollouts out, scores what stays constant during the steps, and assigns the advantages.

        Advantages are made where the rollouts were, whose groups are whole there.

        Returns:
            What this rank trains on, and the advantages of its own rollouts.
        """
        costs = [self.passes.cost(rollout.tokens) for rollout in experience.rollouts]
        placement = Placement.of(costs, self.algorithm.optimizer_steps, ranks().data_rank)
        rollouts = placement.outward(experience.rollouts)
        constants = self._constants(rollouts)
        batch = scored_batch(experience, constants.map(placement.homeward), self._reduce)
        parts = shares(experience.rollouts, self.algorithm.assign(batch))
        return assigned(rollouts, placement.outward(parts), constants), [advantage for advantage, _ in parts]

    def _constants(self, rollouts: Sequence[Rollout]) -> Constants:
        unknown: list[Tensor | None] = [None] * len(rollouts)
        seen = [r.without_mixtures() for r in rollouts] if self.exploration.plain_reference else rollouts
        return Constants(
            old=self._log_probs(self.policy, rollouts) if self.algorithm.needs_old_log_prob else unknown,
            ref=self._reference_log_probs(seen) if self.algorithm.needs_reference else unknown,
            values=self._critic_update().values(rollouts) if self.critic is not None else unknown,
        )

    def _reference_log_probs(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        if self.reference is None:
            with adapter_off(self.policy):
                return self._log_probs(self.policy, rollouts)
        waiting = self.settings.offload_reference
        with visiting(self.reference, self.device) if waiting else nullcontext():
            return self._log_probs(self.reference, rollouts)

    def training_log_probs(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Returns the policy's log-probs of rollouts as an optimiser step computes them (a collective when sharded).

        Float32 [T] each, on the CPU.
        """

        def forward(batch: PackedBatch) -> Tensor:
            with torch.enable_grad():  # compiled and recomputed layers are others without
                return self._score(self.policy, batch).log_prob.detach()

        return self.passes.by_rollout(self.policy, forward, rollouts)

    def _log_probs(self, model: ScoringModel, rollouts: Sequence[Rollout]) -> list[Tensor]:
        return self.passes.by_rollout(model, lambda batch: self._score(model, batch).log_prob, rollouts)

    def _score(self, model: ScoringModel, batch: PackedBatch) -> TokenScores:
        scores: TokenScores = model(
            batch, self.settings.temperature, self.exploration, entropy_gradient=self.algorithm.entropy_coef > 0
        )
        return scores

    def _reduce(self, value: Tensor | float, op: str) -> Tensor:
        """Reduces over the data ranks."""
        tensor = torch.as_tensor(value, dtype=torch.float64, device=self.device)
        if ranks().data_size == 1:
            return tensor
        return self.trainer.strategy.reduce(tensor.clone(), ranks().data_group, reduce_op=op)

    def _reduce_everywhere(self, value: Tensor | float, op: str) -> Tensor:
        """Reduces over all processes, those of a tensor group too."""
        tensor = torch.as_tensor(value, dtype=torch.float64, device=self.device)
        return self.trainer.strategy.reduce(tensor.clone(), reduce_op=op)

    def _optimizer_steps(self, samples: Sequence[Sample], spoiled: bool) -> dict[str, Tensor]:
        """Makes one optimiser step of policy and critic on this rank's share of a minibatch; returns their metrics."""
        policy, *critic = self._optimizers()
        metrics = self._policy_step(samples, policy, spoiled)
        for optimizer in critic:
            metrics |= self._within_memory(
                partial(self._critic_step, samples, optimizer, spoiled),
                [sample.rollout for sample in samples],
                optimizer.zero_grad,
            )
        return metrics

    def _critic_step(self, samples: Sequence[Sample], optimizer: Optimizer, spoiled: bool) -> dict[str, Tensor]:
        admits = partial(self.guard.admits, samples, spoiled=spoiled)
        return self._critic_update().step(samples, optimizer, self.manual_backward, admits)

    def _policy_step(self, samples: Sequence[Sample], optimizer: Optimizer, spoiled: bool) -> dict[str, Tensor]:
        rollouts = [sample.rollout for sample in samples]
        ratios = len(self._ratios)

        def clear() -> None:
            optimizer.zero_grad()
            del self._ratios[ratios:]

        metrics = self._within_memory(lambda: self.accumulate(samples), rollouts, clear)
        metrics["policy/grad_norm"] = clip(self.policy.parameters(), self.settings.max_grad_norm)
        metrics["policy/learning_rate"] = torch.as_tensor(optimizer.param_groups[0]["lr"]).cpu()
        if self.settings.offload_optimizer:
            move_state(self._optimizers(), self.device)
        finite = self.guard.admits(samples, {name: metrics[name] for name in _MUST_BE_FINITE}, spoiled)
        watch = ChangedShare(p for p in self.policy.parameters() if p.requires_grad)
        if finite and metrics["policy/sequences"] > 0:  # all left out: momentum alone would move the policy
            optimizer.step()
            self.lr_schedulers().step()
        metrics["policy/changed_share"] = watch.after(self._reduce_everywhere)
        if not finite:
            metrics["policy/sequences"] = torch.tensor(0.0)  # nothing was learned, and NaN must stay out of averages
        optimizer.zero_grad()
        return metrics

    def _critic_update(self) -> CriticUpdate:
        assert self.critic is not None
        assert self.critic_settings is not None
        return CriticUpdate(self.critic, self.critic_settings, self.exploration, self.passes, ranks().data_size)

    def accumulate(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Adds the gradient of a minibatch's loss to the parameters, microbatch by microbatch.

        The loss is normalised by the counts of the whole minibatch on all ranks. FSDP averages gradients over the
        data ranks, so each one's share is multiplied by their number.
        """
        kept = [s.rollout.length for s in samples if not s.left_out]
        totals = BatchTotals(sequences=int(self._reduce(len(kept), "sum")), tokens=int(self._reduce(sum(kept), "sum")))
        metrics = StepMetrics(self.device)
        with self.passes.over(self.policy, [s.rollout for s in samples]) as parts:
            for indices in parts:
                chosen = [samples[i] for i in indices]
                batch, scores = self.passes.run(lambda b: self._score(self.policy, b), [s.rollout for s in chosen])
                output = self.algorithm.loss(loss_inputs(chosen, scores, batch.response_lengths), totals)
                self.manual_backward(output.loss * ranks().data_size)
                metrics.add(output)
                self._ratios.append(output.ratios)
                self._entropies |= by_key(chosen, scores.entropy)
        return metrics.finish(self._reduce) | {"policy/sequences": torch.tensor(float(totals.sequences))}
