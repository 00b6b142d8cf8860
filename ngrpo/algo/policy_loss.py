"""An algorithm as a composition of functions, and the loss that they make together."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ngrpo.algo.adaptive_entropy import EntropyCoefficient
from ngrpo.algo.advantage import standardised
from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.clip import Surrogate
from ngrpo.algo.correction import Correction, NoCorrection, RolloutCorrection
from ngrpo.algo.credit import Broadcast, Credit, Credited, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.kl import k1, k3
from ngrpo.algo.learned_state import LearnedState
from ngrpo.algo.loss_terms import LossInputs, LossOutput, LossSums
from ngrpo.algo.marks import is_marked, reads_log_prob, reads_share, signed
from ngrpo.algo.outcome_bonus import OutcomeBonus
from ngrpo.algo.ratio import BoundedRatio
from ngrpo.algo.segments import per_sequence_sum, sequence_index
from ngrpo.algo.token_weight import EvenTokens, TokenWeight, TokenWeighting, WeighedTokens, even
from ngrpo.algo.truncation import with_zeros, without_truncated
from ngrpo.algo.within_group import LearningSelection
from ngrpo.errors import SettingError

_CHOICES = {
    "ratio_to": ("trainer", "engine"),
    "kl_in": ("loss", "reward"),
    "zero_signal": ("keep", "drop"),
    "truncated": ("keep", "drop", "zero", "zero_unscored"),
    "shared_tokens": ("once", "each"),
}

_BASES: Mapping[str, type] = {
    "credit": Credit,
    "correction": RolloutCorrection,
    "token_weight": TokenWeighting,
    "bonus": OutcomeBonus,
    "adaptive_entropy": EntropyCoefficient,
}
"""What parts that are objects derive from; the others are functions."""


@dataclass(frozen=True)
class Algorithm:
    """A policy-gradient algorithm: which advantage, credit, ratio level, clip, aggregation, KL and correction.

    Attributes:
        advantage: rewards [P, G] -> advantages [P, G]; see `ngrpo.algo.advantage`.
        ratio: (log_prob, old_log_prob, lengths) -> log ratios [N], or a `ngrpo.algo.ratio.BoundedRatio` that says which
            tokens are clipped; see `ngrpo.algo.ratio`, and `ngrpo.algo.marks` for those that are given more.
        clip: (log_ratio [N], advantage [A, N]) -> Surrogate [A, N]; see `ngrpo.algo.clip` and likewise.
        aggregate: (lengths, totals) -> token weights [S]; see `ngrpo.algo.aggregate`.
        kl: (log_prob, ref_log_prob, old_log_prob) -> [N]; see `ngrpo.algo.kl`.
        credit: from the responses' advantages to those of their tokens; see `ngrpo.algo.credit`.
        token_weight: which tokens count, and how much; see `ngrpo.algo.token_weight`.
        correction: weights for the distance between engine and trainer; see `ngrpo.algo.correction`.
        within_group: (rewards [P, G], lengths [P, G]) -> rewards, NaN where a response is not learned from; see
            `ngrpo.algo.within_group`, which has one with a state too. None learns from all.
        bonus: numbers by final answer that are added to the advantages; see `ngrpo.algo.outcome_bonus`.
        ratio_to: what ratios compare the current policy with: "trainer", its log-probs before this rollout batch by the
            trainer, or "engine", those that the engine recorded. Ratios then hold the distance between engine and
            trainer too, which a correction would count twice.
        kl_coef: weight of the KL to the reference; 0 needs no reference model.
        kl_in: "loss" adds ``kl_coef * kl``, aggregated like the surrogate. "reward" takes ``kl_coef * k1``, under the
            policy that made the rollouts, off the rewards: off every token's where the credit is by token, else summed
            off the response's before the advantage; ``kl`` is then only logged.
        entropy_coef: weight of the policy's entropy, subtracted from the loss and aggregated like the surrogate.
        adaptive_entropy: changes that weight with the entropy instead, which must then be 0; None for a constant one.
        zero_signal: of groups that have advantage 0 on every token (all responses equally good, as far as this
            algorithm can tell): "keep" counts them in the denominators and regularises them, "drop" excludes them.
        truncated: of responses that ran into the length limit: "keep" learns from them like from any other, "drop"
            excludes them from the loss, after they have counted in the statistics of their group, "zero" gives them
            advantage 0 then, so that they stay in the denominators, and "zero_unscored" does so before they count.
        shared_tokens: of tokens that k responses have in common (`ngrpo.rollout.scheduling`): "once" counts each 1/k in
            each response, in the loss, its denominators and the metrics, so that it is learned from once, with the mean
            of the k advantages; "each" trains on whole responses as if they had nothing in common, so that its
            gradient is the sum over the k.
        prompts_per_batch: prompts per rollout batch, over all ranks.
        optimizer_steps: optimiser steps per rollout batch, which is cut into as many minibatches.

    Raises:
        SettingError: a setting is out of range, or the steps do not divide the prompts.
    """

    advantage: Callable[[Tensor], Tensor]
    ratio: Callable[..., Tensor | BoundedRatio]
    clip: Callable[..., Surrogate]
    aggregate: Callable[[Tensor, BatchTotals], Tensor]
    kl: Callable[[Tensor, Tensor, Tensor], Tensor]
    credit: Credit = field(default_factory=Broadcast)
    correction: RolloutCorrection = field(default_factory=NoCorrection)
    token_weight: TokenWeighting = field(default_factory=EvenTokens)
    within_group: Callable[[Tensor, Tensor], Tensor] | LearningSelection | None = None
    bonus: OutcomeBonus | None = None
    ratio_to: str = "trainer"
    kl_coef: float = 0.0
    kl_in: str = "loss"
    entropy_coef: float = 0.0
    adaptive_entropy: EntropyCoefficient | None = None
    zero_signal: str = "keep"
    truncated: str = "keep"
    shared_tokens: str = "once"
    prompts_per_batch: int = 16
    optimizer_steps: int = 1

    def __post_init__(self) -> None:
        for name, base in _BASES.items():
            part = getattr(self, name)
            if part is not None and not isinstance(part, base):
                raise SettingError(
                    f"algo.{name} makes a {type(part).__name__}, which is no {base.__module__}.{base.__name__}; derive "
                    "its class from that."
                )
        for name, term in (("kl_coef", "KL term"), ("entropy_coef", "entropy bonus")):
            if not getattr(self, name) >= 0:
                raise SettingError(
                    f"algo.{name}={getattr(self, name)} must not be negative: set it to 0 for no {term}, or above."
                )
        if self.adaptive_entropy is not None and self.entropy_coef > 0:
            raise SettingError(
                f"algo.entropy_coef={self.entropy_coef} is a constant, and algo.adaptive_entropy chooses the "
                "coefficient by the entropy; set algo.entropy_coef=0."
            )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise SettingError(f"algo.{name}={getattr(self, name)} is not known; choose {_either(choices)}.")
        for name in ("prompts_per_batch", "optimizer_steps"):
            if getattr(self, name) < 1:
                raise SettingError(f"algo.{name}={getattr(self, name)} is too small: set it to 1 or more.")
        if self.prompts_per_batch % self.optimizer_steps:
            raise SettingError(
                f"algo.prompts_per_batch={self.prompts_per_batch} cannot be cut into "
                f"algo.optimizer_steps={self.optimizer_steps} equal minibatches: "
                "make the first a multiple of the second."
            )

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model must be kept."""
        return self.kl_coef > 0

    @property
    def entropy_weight(self) -> float:
        """The coefficient of the entropy bonus in the next optimiser step."""
        return self.entropy_coef if self.adaptive_entropy is None else self.adaptive_entropy.weight

    def state_dict(self) -> dict[str, Any]:
        """Holds what parts of the algorithm have learned; the same on every rank, empty where none has a state."""
        return {name: part.state_dict() for name, part in self._stateful.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
        for name, part in self._stateful.items():
            if name in state:
                part.load_state_dict(state[name])

    @property
    def _stateful(self) -> dict[str, LearnedState]:
        selection = self.within_group if isinstance(self.within_group, LearningSelection) else None
        parts: dict[str, LearnedState | None] = {
            "adaptive_entropy": self.adaptive_entropy,
            "bonus": self.bonus,
            "within_group": selection,
        }
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def advantages_need_old_log_prob(self) -> bool:
        """Whether advantages are made from old log-probs."""
        return self.kl_in == "reward" or self.credit.needs_old_log_prob

    @property
    def needs_scoring_pass(self) -> bool:
        """Whether every rollout must be scored before the first step; else that step's own scores serve as its old."""
        return self.advantages_need_old_log_prob or self.weighs_batch

    @property
    def unit_spread(self) -> bool:
        """Whether the largest advantages are of about one, whatever the size of the rewards."""
        if isinstance(self.credit, Broadcast):
            return is_marked(self.advantage, standardised)
        return bool(getattr(self.credit, "whiten", False))

    @property
    def weighs_batch(self) -> bool:
        """Whether `weigh` is needed: which tokens count is known only from the whole optimiser batch."""
        return self.token_weight.batch_wide or self.correction.rejects

    def weigh(self, tokens: WeighedTokens, log_mismatch: Tensor, lengths: Tensor) -> TokenWeight:
        """Returns what `LossInputs.token_weight` needs of an optimiser batch (a collective).

        What the correction rejects takes no part in the statistics of the others.

        Args:
            tokens: N in all, of S responses.
            log_mismatch: float [N], see `LossInputs.log_mismatch`.
            lengths: int64 [S].
        """
        if self.correction.rejects:
            rejected = self.correction(log_mismatch, lengths).weight == 0
            tokens = replace(tokens, advantages=tokens.advantages.masked_fill(rejected, math.nan))
        made = self.token_weight(tokens) if self.token_weight.batch_wide else even(tokens.log_prob)
        return made._replace(counted=made.counted & tokens.kept)

    def assign(self, batch: ScoredBatch) -> Credited:
        """Returns the advantages of all tokens: rewards, advantage within groups, credit, and who is excluded.

        Raises:
            ValueError: the KL is in the reward and a log-prob of ``batch`` is None.
        """
        penalty, observed = self._penalty(batch), batch.groups.table(batch.rewards)
        if not self.credit.token_level:
            batch = replace(batch, rewards=batch.rewards - per_sequence_sum(penalty, batch.lengths))
        cut_off = batch.truncated & ~batch.rewards.isnan()
        if self.truncated == "zero_unscored":
            batch = replace(batch, rewards=batch.rewards.masked_fill(cut_off, math.nan))
        rewards = batch.groups.table(batch.rewards)
        if self.within_group is not None:
            rewards = self.selected(rewards, batch.groups.table(batch.lengths.to(rewards.dtype)), observed)
            batch = replace(batch, rewards=batch.groups.flat(rewards))
        advantages = batch.groups.flat(self.advantage(rewards))
        if batch.bonus is not None:
            advantages = advantages + batch.bonus.to(advantages.dtype)
        credited = self.credit(batch, advantages, penalty)
        if self.truncated == "zero":
            credited = with_zeros(credited, cut_off & ~advantages.isnan(), batch.lengths)
        if self.truncated == "zero_unscored":
            credited = with_zeros(credited, cut_off, batch.lengths)
        if self.zero_signal == "drop":
            credited = _without_zero_signal(credited, batch)
        return without_truncated(credited, batch.truncated, batch.lengths) if self.truncated == "drop" else credited

    def selected(self, rewards: Tensor, lengths: Tensor, observed: Tensor) -> Tensor:
        """Returns the rewards, NaN where ``within_group`` keeps nothing; arguments as for `LearningSelection`."""
        if self.within_group is None:
            return rewards
        if isinstance(self.within_group, LearningSelection):
            return self.within_group(rewards, lengths, observed)
        return self.within_group(rewards, lengths)

    def _penalty(self, batch: ScoredBatch) -> Tensor:
        if self.kl_in == "loss":
            return batch.rewards.new_zeros(int(batch.lengths.sum()))
        if batch.old_log_prob is None or batch.ref_log_prob is None:
            raise ValueError("kl_in=reward needs old_log_prob and ref_log_prob, and one is None")
        return self.kl_coef * k1(batch.old_log_prob, batch.ref_log_prob, batch.old_log_prob)

    def loss(self, batch: LossInputs, totals: BatchTotals) -> LossOutput:
        """The microbatch's part of ``sum_t weight_t (w_t surrogate_t + kl_coef kl_t - entropy_coef entropy_t)``.

        w is the correction's times the token's; tokens that do not count are left out of the sum.

        Args:
            batch: the microbatch; its dtype (float32 at least) is kept.
            totals: counts over the whole optimiser batch.

        Raises:
            ValueError: ``kl_coef`` is positive and ``batch.ref_log_prob`` is None.
        """
        log_prob, lengths = batch.log_prob, batch.lengths
        advantages = batch.advantages.nan_to_num(0.0)
        old_log_prob = self._old_log_prob(batch)
        log_ratio, held = self.bounded_ratio(log_prob, old_log_prob, lengths, advantages, batch.share)
        surrogate = self.surrogate(log_ratio, advantages, log_prob)
        correction = self.correction(batch.log_mismatch, lengths)
        kl = self._kl(batch)
        token = self._token_weight(batch)
        counted = batch.counts(batch.kept & token.counted)
        by_token = correction.weight * (token.weight * surrogate.loss).sum(0) - self.entropy_weight * batch.entropy
        if token.penalty is not None:
            by_token = by_token + token.penalty * (log_prob - old_log_prob).abs()
        if surrogate.penalty is not None:
            by_token = by_token + surrogate.penalty
        if self.kl_in == "loss":
            by_token = by_token + self.kl_coef * kl
        counts = per_sequence_sum(counted, lengths)
        weight = self.aggregate(counts, totals)[sequence_index(lengths, log_prob.shape[0])]
        loss = (counted * weight * by_token).sum()
        log_ratio = log_ratio if log_ratio.dim() == 1 else log_ratio[0]  # of the first channel, where they differ
        clipped = surrogate.clipped if held is None else surrogate.clipped | held
        sums = _sums(batch, log_ratio, clipped.any(0), kl, correction)
        return LossOutput(loss, sums, _mismatch_max(batch), _ratios(batch, log_ratio))

    def _token_weight(self, batch: LossInputs) -> TokenWeight:
        """Of the whole batch, where it was made; of the microbatch else, with the tokens that were found to count."""
        given = batch.token_weight
        if self.weighs_batch and given is None:
            raise ValueError(f"token_weight={type(self.token_weight).__name__} needs weights of the batch, see weigh")
        if given is not None and self.token_weight.batch_wide:
            return given
        log_prob, entropy = batch.log_prob.detach(), batch.entropy.detach()
        local = self.token_weight(WeighedTokens(log_prob, entropy, batch.advantages, log_prob, lambda value, _: value))
        return local if given is None else local._replace(counted=local.counted & given.counted)

    def _old_log_prob(self, batch: LossInputs) -> Tensor:
        return batch.rollout_log_prob if self.ratio_to == "engine" else batch.old_log_prob

    def bounded_ratio(
        self,
        log_prob: Tensor,
        old_log_prob: Tensor,
        lengths: Tensor,
        advantages: Tensor,
        share: Tensor | None = None,
    ) -> BoundedRatio:
        """Calls `ratio` with what it takes; advantages [A, N] -> [N], or [A, N] of one that is `signed`."""
        further = (advantages,) if is_marked(self.ratio, signed) else ()
        by_share = {"share": share} if is_marked(self.ratio, reads_share) else {}
        made = self.ratio(log_prob, old_log_prob, lengths, *further, **by_share)
        return made if isinstance(made, BoundedRatio) else BoundedRatio(made)

    def surrogate(self, log_ratio: Tensor, advantages: Tensor, log_prob: Tensor) -> Surrogate:
        """Calls `clip` with what it takes; [N] or [A, N], [A, N], [N] -> [A, N]."""
        further = (log_prob.detach(),) if is_marked(self.clip, reads_log_prob) else ()
        return self.clip(log_ratio, advantages, *further)

    def _kl(self, batch: LossInputs) -> Tensor:
        if batch.ref_log_prob is not None:
            return self.kl(batch.log_prob, batch.ref_log_prob, self._old_log_prob(batch))
        if self.needs_reference:
            raise ValueError(f"kl_coef={self.kl_coef} needs ref_log_prob, which is None")
        return torch.zeros_like(batch.log_prob)


def _either(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _without_zero_signal(credited: Credited, batch: ScoredBatch) -> Credited:
    """Excludes the groups of which no token has an advantage other than 0; a group of unscored ones is out anyway."""
    moves = (credited.advantages.nan_to_num(0.0) != 0).any(0).to(batch.rewards.dtype)
    groups: Groups = batch.groups
    by_group = groups.table(per_sequence_sum(moves, batch.lengths)).nansum(-1)
    dropped = (by_group == 0)[groups.rows][sequence_index(batch.lengths)]
    return credited._replace(advantages=credited.advantages.masked_fill(dropped, math.nan))


@torch.no_grad()
def _sums(batch: LossInputs, log_ratio: Tensor, clipped: Tensor, kl: Tensor, correction: Correction) -> LossSums:
    kept = batch.counts(batch.kept)
    mismatch, zero = batch.log_mismatch, torch.zeros_like(log_ratio)
    return LossSums(
        tokens=kept.sum(),
        kl=(kept * kl).sum(),
        clipped=(kept * clipped).sum(),
        ratio=(kept * log_ratio.exp()).sum(),
        entropy=(kept * batch.entropy).sum(),
        weight=(kept * correction.weight).sum(),
        bounded=(kept * correction.bounded).sum(),
        mismatch=(kept * mismatch.abs()).sum(),
        mismatch_k1=-(kept * mismatch).sum(),
        mismatch_k3=(kept * k3(zero, mismatch, zero)).sum(),
    )


def _ratios(batch: LossInputs, log_ratio: Tensor) -> Tensor:
    # NaN, and not a selection, which would wait for the device.
    return log_ratio.detach().exp().masked_fill(~batch.kept, math.nan)


def _mismatch_max(batch: LossInputs) -> Tensor:
    kept = batch.log_mismatch.abs() * batch.kept
    return torch.cat((kept, kept.new_zeros(1))).max()
