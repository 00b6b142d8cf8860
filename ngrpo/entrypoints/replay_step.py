"""The replay of a skipped optimiser step: sample by sample, which numbers are not finite."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from omegaconf import OmegaConf

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.checkpoint.export import Weights, checkpoint_weights
from ngrpo.checkpoint.folders import open_checkpoint
from ngrpo.config.instantiate import build
from ngrpo.config.permissions import StoredPermissions
from ngrpo.errors import SettingError, first_line
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import PRECISIONS
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.memory_budget import MemoryBudget
from ngrpo.training.samples import Sample, batch_totals, loss_inputs
from ngrpo.training.skipped_steps import BadStep


@dataclass(frozen=True)
class SampleReport:
    """What one sample contributes to the step.

    Attributes:
        problem: key of the problem that it answers.
        tokens: of its response.
        left_out: whether it takes no part in the loss.
        loss: its share of the minibatch's loss.
        grad_norm: of that share's gradient.
    """

    problem: int
    tokens: int
    left_out: bool
    loss: float
    grad_norm: float

    @property
    def finite(self) -> bool:
        """Whether the step could have been made with it."""
        return bool(torch.tensor([self.loss, self.grad_norm]).isfinite().all())


NOTHING = StoredPermissions()


def replay(bad: BadStep, checkpoint: Path | None, permissions: StoredPermissions = NOTHING) -> list[SampleReport]:
    """Makes the forward and backward pass of each sample of this rank's share, alone.

    Args:
        bad: the step.
        checkpoint: whose weights to use; None for those that the run began with.
        permissions: what the file's settings may run; what they permit themselves does not count.

    Raises:
        SettingError: the file's settings name code that is not permitted, or the file or the checkpoint is
            damaged.
    """
    config = OmegaConf.create(dict(bad.settings))
    parts = permissions.checked(config, ["model", "algo", "exploration"])
    source, algorithm, exploration = map(build, parts)
    kinds = (ModelSource, Algorithm, Exploration)
    if not all(map(isinstance, (source, algorithm, exploration), kinds)) or "trainer" not in config:
        raise SettingError("the step's settings are not those of a run; it is damaged.")
    _restore(algorithm, bad)
    model = ScoringModel(source.load(), load_learned(source, exploration))
    if checkpoint is not None:
        open_checkpoint(checkpoint)
        weights = checkpoint_weights(checkpoint, source.lora)
        _take(weights, model)
    passes = ForwardPasses(
        device=torch.device("cpu"),
        budget=MemoryBudget(config.trainer.microbatch_tokens),
        mixed_in=PRECISIONS[config.trainer.precision],
        cost=PassCost.of(model.lm.config),
        reduce=lambda value, op: value,
    )
    totals = batch_totals(bad.samples, passes.reduce)
    forward = partial(
        model,
        temperature=config.rollout.temperature,
        exploration=exploration,
        entropy_gradient=algorithm.entropy_weight > 0,
    )

    def report(problem: int, sample: Sample) -> SampleReport:
        with passes.precision(model):
            batch, scores = passes.run(forward, [sample.rollout])
            output = algorithm.loss(loss_inputs([sample], scores, batch.response_lengths), totals)
            output.loss.backward()
        norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        norm = float(torch.stack(norms).norm())
        return SampleReport(problem, sample.rollout.generated, sample.excluded, float(output.loss.detach()), norm)

    return [report(problem, sample) for problem, sample in zip(bad.problems, bad.samples, strict=True)]


def _restore(algorithm: Algorithm, bad: BadStep) -> None:
    try:
        algorithm.load_state_dict(dict(bad.algorithm))
    except Exception as error:
        raise SettingError(
            f"what the algorithm had learned cannot be read from the step ({first_line(error)}); it is damaged."
        ) from error


@torch.no_grad()
def _take(weights: Weights, model: ScoringModel) -> None:
    for name, parameter in model.lm.named_parameters():
        parameter.copy_(weights.model[name])
    for name, parameter in model.learned.named_parameters():
        parameter.copy_(weights.learned[name])
