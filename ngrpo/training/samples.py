"""Between rollouts and loss: what is known of each response, packed and unpacked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.algo.credit import Credited, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.loss_terms import LossInputs
from ngrpo.algo.moments import Reduce
from ngrpo.modeling.policy import TokenScores
from ngrpo.modeling.transfer import onto
from ngrpo.types.experience import Experience
from ngrpo.types.rollouts import Rollout


@dataclass(frozen=True)
class Sample:
    """One sequence to learn from.

    Attributes:
        rollout: tokens and record.
        advantage: of each token, float32 [A, T] on the CPU; see `ngrpo.algo.credit.Credited`. NaN throughout leaves
            the sequence out.
        old_log_prob: under the policy before this rollout batch; float32 [T], None where a single step's own serve.
        ref_log_prob: under the reference; float32 [T], None without one.
        old_value: of the critic before this rollout batch; float32 [T], None without one.
        returns: what the critic learns to predict; float32 [T], NaN if unscored, None without a critic.
    """

    rollout: Rollout
    advantage: Tensor
    old_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    old_value: Tensor | None = None
    returns: Tensor | None = None

    @property
    def left_out(self) -> bool:
        """Whether the sequence takes no part in the loss and its counts."""
        return bool(self.advantage.isnan().any())


Share = tuple[Tensor, Tensor | None]
"""Advantage and returns of one sequence."""


@dataclass(frozen=True)
class Update:
    """What the optimiser steps of an iteration leave behind for whoever draws them.

    Attributes:
        advantages: of the tokens of each response, float32 [A, T] on the CPU; NaN throughout leaves it out.
        ratios: importance ratios by microbatch, in the order of the steps; float [N] each, NaN where left out.
        entropies: of the policy before each token, in nats, as the step that learned from it saw them: float32 [T] by
            the rollout's key, for the rollouts that this rank trained on.
    """

    advantages: Sequence[Tensor]
    ratios: Sequence[Tensor]
    entropies: Mapping[int, Tensor]


@dataclass(frozen=True)
class Constants:
    """What stays as it is during the optimiser steps on S rollouts: a tensor for each, or None for all.

    Attributes:
        old: log-probs under the policy; [T].
        ref: log-probs under the reference; [T].
        values: of the critic, before each token and after the last; [T + 1].
    """

    old: Sequence[Tensor | None]
    ref: Sequence[Tensor | None]
    values: Sequence[Tensor | None]

    def map(self, move: Callable[[Sequence[Tensor | None]], list[Tensor | None]]) -> "Constants":
        """Returns each of the three moved."""
        return Constants(move(self.old), move(self.ref), move(self.values))


def scored_batch(experience: Experience, constants: Constants, reduce: Reduce) -> ScoredBatch:
    """Packs a rank's rollouts for the assignment of advantages."""
    cpu = torch.device("cpu")
    values = [value for value in constants.values if value is not None]
    ends = torch.stack([value[-1].cpu() for value in values]) if values else None
    return ScoredBatch(
        groups=Groups.of(experience.keys),
        rewards=experience.rewards.flatten(),
        answers=experience.outcomes,
        lengths=torch.tensor([rollout.length for rollout in experience.rollouts]),
        truncated=experience.truncated,
        reduce=lambda value, op: reduce(value, op).cpu(),
        old_log_prob=_packed(constants.old, cpu),
        ref_log_prob=_packed(constants.ref, cpu),
        values=_packed([value[:-1] for value in values], cpu),
        bootstrap=None if ends is None else ends.where(experience.truncated, torch.zeros_like(ends)),
    )


def shares(rollouts: Sequence[Rollout], credited: Credited) -> list[Share]:
    """Takes the advantages and returns of all tokens apart."""
    lengths = [rollout.length for rollout in rollouts]
    unknown: list[Tensor | None] = [None] * len(rollouts)
    returns = unknown if credited.returns is None else torch.split(credited.returns, lengths)
    return list(zip(torch.split(credited.advantages, lengths, dim=-1), returns, strict=True))


def assigned(rollouts: Sequence[Rollout], parts: Sequence[Share], constants: Constants) -> list[Sample]:
    """Puts samples together."""
    rows = zip(rollouts, parts, constants.old, constants.ref, constants.values, strict=True)
    return [
        Sample(rollout, part[0], old, ref, None if value is None else value[:-1], part[1])
        for rollout, part, old, ref, value in rows
    ]


def loss_inputs(samples: Sequence[Sample], scores: TokenScores, lengths: Tensor) -> LossInputs:
    """Packs a microbatch; with a single optimiser step the old policy is the current one, the ratio exactly 1."""
    device = scores.log_prob.device
    old = _packed([s.old_log_prob for s in samples], device)
    return LossInputs(
        log_prob=scores.log_prob,
        old_log_prob=scores.log_prob.detach() if old is None else old,
        ref_log_prob=_packed([s.ref_log_prob for s in samples], device),
        rollout_log_prob=onto(torch.cat([s.rollout.log_probs for s in samples]), device),
        entropy=scores.entropy,
        advantages=onto(torch.cat([s.advantage for s in samples], dim=-1), device),
        lengths=lengths,
    )


def by_key(samples: Sequence[Sample], values: Tensor) -> dict[int, Tensor]:
    """Takes the values of a microbatch's tokens apart, without gradient; [N] -> [T] by the rollout's key."""
    lengths = [sample.rollout.length for sample in samples]
    parts = torch.split(values.detach(), lengths)
    return {sample.rollout.key: part for sample, part in zip(samples, parts, strict=True)}


def _packed(parts: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return onto(torch.cat(known), device) if known else None
