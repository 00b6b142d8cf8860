"""Samples, one for each response to learn from, and the tensors that are packed from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.credit import Credited, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.loss_terms import LossInputs
from ngrpo.algo.moments import Reduce
from ngrpo.algo.token_weight import TokenWeight
from ngrpo.modeling.policy import TokenScores
from ngrpo.modeling.transfer import onto
from ngrpo.types.experience import Experience
from ngrpo.types.paths import shares
from ngrpo.types.rollouts import Rollout


@dataclass(frozen=True)
class Sample:
    """One sequence to learn from: its N generated tokens; a prefix that was given is context, as the prompt is.

    Attributes:
        rollout: tokens and record.
        advantage: of each token, float32 [A, N] on the CPU; see `ngrpo.algo.credit.Credited`. NaN throughout
            excludes the sequence.
        old_log_prob: under the policy before this rollout batch; float32 [N], None where the first step's own serve.
        ref_log_prob: under the reference; float32 [N], None without one.
        old_value: of the critic before this rollout batch; float32 [N], None without one.
        returns: what the critic learns to predict; float32 [N], NaN if unscored, None without a critic.
        old_entropy: under the policy before this rollout batch; float32 [N], None where nothing asks for it.
        token_weight: of each token in its optimiser batch; float32 [A, N] or [1, N], None for 1.
        counted: whether each token counts in it; bool [N], None if all do.
        penalty: see `ngrpo.algo.token_weight.TokenWeight`; float32 [N], None for 0.
        share: see `ngrpo.algo.loss_terms.LossInputs`; float32 [N], None for 1.
    """

    rollout: Rollout
    advantage: Tensor
    old_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    old_value: Tensor | None = None
    returns: Tensor | None = None
    old_entropy: Tensor | None = None
    token_weight: Tensor | None = None
    counted: Tensor | None = None
    penalty: Tensor | None = None
    share: Tensor | None = None

    @property
    def tokens(self) -> float:
        """Tokens that count in the loss, by their shares."""
        if self.excluded:
            return 0
        if self.share is None:
            return self.rollout.generated if self.counted is None else int(self.counted.sum())
        return float((self.share if self.counted is None else self.share * self.counted).double().sum())

    @property
    def excluded(self) -> bool:
        """Whether the sequence takes no part in the loss and its counts."""
        return bool(self.advantage.isnan().any())


class ResponseCredit(NamedTuple):
    """Credit of one response, for its N generated tokens.

    Attributes:
        advantages: of its tokens; float32 [A, N].
        returns: that the critic learns to predict; float32 [N], None without a critic.
        share: see `Sample`.
    """

    advantages: Tensor
    returns: Tensor | None
    share: Tensor | None = None


@dataclass(frozen=True)
class Update:
    """Record of the optimiser steps of an iteration, for the report and the histograms.

    Attributes:
        advantages: of the N generated tokens of each response, float32 [A, N] on the CPU; NaN throughout excludes it.
        ratios: importance ratios by microbatch, in the order of the steps; float [N] each, NaN where excluded.
        entropies: of the policy before each of them, in nats, as the step that learned from it saw them: float32 [N] by
            the rollout's key, for the rollouts that this rank trained on.
    """

    advantages: Sequence[Tensor]
    ratios: Sequence[Tensor]
    entropies: Mapping[int, Tensor]


@dataclass(frozen=True)
class PrecomputedLogProbs:
    """Log-probs and values that stay as they are during the optimiser steps on S rollouts.

    A tensor for each rollout of N generated tokens, or None for all.

    Attributes:
        old: log-probs under the policy before the steps; [N], or None for those of the first step.
        reference: log-probs under the reference; [N].
        values: of the critic before the steps, before each token and after the last; [N + 1].
        entropies: of the policy before the steps, before each token; [N]. Empty where nothing asks for them. They are
            read where the tokens are trained on, and stay there.
    """

    old: Sequence[Tensor | None]
    reference: Sequence[Tensor | None]
    values: Sequence[Tensor | None]
    entropies: Sequence[Tensor | None] = ()

    def map(self, move: Callable[[Sequence[Tensor | None]], list[Tensor | None]]) -> "PrecomputedLogProbs":
        """Returns each of the first three moved."""
        return PrecomputedLogProbs(move(self.old), move(self.reference), move(self.values))


def scored_batch(experience: Experience, precomputed: PrecomputedLogProbs, reduce: Reduce) -> ScoredBatch:
    """Packs a rank's rollouts for the assignment of advantages."""
    cpu = torch.device("cpu")
    values = [value for value in precomputed.values if value is not None]
    ends = torch.stack([value[-1].cpu() for value in values]) if values else None
    return ScoredBatch(
        groups=Groups.of(experience.keys),
        rewards=experience.rewards.flatten(),
        answers=experience.outcomes,
        lengths=torch.tensor([rollout.generated for rollout in experience.rollouts]),
        truncated=experience.truncated,
        reduce=lambda value, op: reduce(value, op).cpu(),
        old_log_prob=_packed(precomputed.old, cpu),
        ref_log_prob=_packed(precomputed.reference, cpu),
        values=_packed([value[:-1] for value in values], cpu),
        paths=[rollout.path for rollout in experience.rollouts],
        bootstrap=None if ends is None else ends.where(experience.truncated, torch.zeros_like(ends)),
    )


def split_credit(rollouts: Sequence[Rollout], credited: Credited) -> list[ResponseCredit]:
    """Splits the advantages and returns of all tokens by response."""
    lengths = [rollout.generated for rollout in rollouts]
    unknown: list[Tensor | None] = [None] * len(rollouts)
    returns = unknown if credited.returns is None else torch.split(credited.returns, lengths)
    advantages = torch.split(credited.advantages, lengths, dim=-1)
    return [ResponseCredit(*parts) for parts in zip(advantages, returns, strict=True)]


def with_shares(rollouts: Sequence[Rollout], credits: Sequence[ResponseCredit]) -> list[ResponseCredit]:
    """Returns credits by which tokens that responses have in common count once; an excluded response has no share."""
    counted = [not bool(credit.advantages.isnan().any()) for credit in credits]
    found = shares([rollout.path for rollout in rollouts], [rollout.length for rollout in rollouts], counted)
    return [credit._replace(share=share) for credit, share in zip(credits, found, strict=True)]


def make_samples(
    rollouts: Sequence[Rollout], credits: Sequence[ResponseCredit], precomputed: PrecomputedLogProbs
) -> list[Sample]:
    """Returns a sample for each rollout."""
    entropies = precomputed.entropies or [None] * len(rollouts)
    rows = zip(rollouts, credits, precomputed.old, precomputed.reference, precomputed.values, entropies, strict=True)
    return [
        Sample(
            rollout,
            credit.advantages,
            old,
            reference,
            None if value is None else value[:-1],
            credit.returns,
            entropy,
            share=credit.share,
        )
        for rollout, credit, old, reference, value, entropy in rows
    ]


def scored_by_their_own_step(samples: Sequence[Sample]) -> list[Sample]:
    """Returns the samples of a rollout batch's first step, whose old policy is the current one: its ratio is exactly 1.

    They may have been scored before, for advantages or weights: by passes of other shapes, whose rounding a tight clip,
    or a penalty of the distance, would take for a change of the policy.
    """
    return [replace(sample, old_log_prob=None) for sample in samples]


def batch_totals(samples: Sequence[Sample], reduce: Reduce) -> BatchTotals:
    """Counts what the loss of an optimiser batch is normalised by, over all ranks (a collective)."""
    kept = [float(tokens) for sample in samples if (tokens := sample.tokens)]
    counts = torch.tensor([float(len(kept)), sum(kept)], dtype=torch.float64)
    sequences, tokens = reduce(counts, "sum").tolist()
    return BatchTotals(sequences=int(sequences), tokens=tokens)


def loss_inputs(samples: Sequence[Sample], scores: TokenScores, lengths: Tensor) -> LossInputs:
    """Packs a microbatch; in the first step the old policy is the current one, the ratio exactly 1."""
    device = scores.log_prob.device
    old = _packed([s.old_log_prob for s in samples], device)
    return LossInputs(
        log_prob=scores.log_prob,
        old_log_prob=scores.log_prob.detach() if old is None else old,
        ref_log_prob=_packed([s.ref_log_prob for s in samples], device),
        rollout_log_prob=onto(torch.cat([s.rollout.generated_log_probs for s in samples]), device),
        entropy=scores.entropy,
        advantages=onto(torch.cat([s.advantage for s in samples], dim=-1), device),
        lengths=lengths,
        token_weight=_token_weight(samples, device),
        share=_shares(samples, device),
    )


def _token_weight(samples: Sequence[Sample], device: torch.device) -> TokenWeight | None:
    weights = [s.token_weight for s in samples if s.token_weight is not None]
    counted = _packed([s.counted for s in samples], device)
    if counted is None:
        return None
    return TokenWeight(onto(torch.cat(weights, dim=-1), device), counted, _packed([s.penalty for s in samples], device))


def _shares(samples: Sequence[Sample], device: torch.device) -> Tensor | None:
    if all(sample.share is None for sample in samples):
        return None
    whole = [torch.ones(s.rollout.generated) if s.share is None else s.share for s in samples]
    return onto(torch.cat(whole), device)


def by_key(samples: Sequence[Sample], values: Tensor) -> dict[int, Tensor]:
    """Splits the values of a microbatch's tokens by the rollout's key, without gradient; [N] -> its own each."""
    lengths = [sample.rollout.generated for sample in samples]
    parts = torch.split(values.detach(), lengths)
    return {sample.rollout.key: part for sample, part in zip(samples, parts, strict=True)}


def _packed(parts: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return onto(torch.cat(known), device) if known and len(known) == len(parts) else None
