"""Preparation of the samples that each rank trains on: balanced over the ranks, scored, with advantages."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.within_group import LearningSelection
from ngrpo.distributed.collectives import gathered, ranks
from ngrpo.modeling.packing import first_with_prompt
from ngrpo.modeling.shared_prompts import LEAST_REPEATED
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.load_balancing import LoadBalance, SequenceCost
from ngrpo.training.samples import Sample, make_samples, scored_batch, split_credit, with_shares
from ngrpo.training.scoring import Scorer
from ngrpo.types.experience import Experience
from ngrpo.types.rollouts import Rollout


def outcome_bonus(experience: Experience, algorithm: Algorithm) -> Tensor | None:
    """Returns the bonuses of this rank's responses by their answers, which are counted (a collective); None without."""
    if algorithm.bonus is None:
        return None
    return algorithm.bonus(experience.keys, [score.answer for score in experience.scores], gathered)


def observe_groups(experience: Experience, algorithm: Algorithm) -> None:
    """Tells a selection that learns of the groups of all ranks (a collective); once an iteration."""
    if isinstance(algorithm.within_group, LearningSelection):
        algorithm.within_group.observe(torch.cat(gathered(experience.rewards)))


def prepare_samples(
    experience: Experience, algorithm: Algorithm, scorer: Scorer, bonus: Tensor | None = None
) -> tuple[list[Sample], list[Tensor]]:
    """Balances the rollouts over the ranks, scores them there, and assigns advantages (a collective).

    Advantages are made where the rollouts were generated, whose groups are whole there.

    Args:
        experience: of this rank.
        algorithm: assigns advantages.
        scorer: scores.
        bonus: of each response, float32; see `outcome_bonus`, which may be called once only.

    Returns:
        What this rank trains on, minibatch by minibatch, and the advantages of the rollouts that it generated; float32
        [A, T] each.
    """
    passes = scorer.forward_passes
    balance = LoadBalance.of(_costs(experience.rollouts, passes), algorithm.optimizer_steps, ranks().data_rank)
    rollouts = balance.scatter(experience.rollouts)
    precomputed = scorer.precompute(rollouts)
    batch = scored_batch(experience, precomputed.map(balance.gather), passes.reduce)
    credits = split_credit(experience.rollouts, algorithm.assign(replace(batch, bonus=bonus)))
    if algorithm.shared_tokens == "once":
        credits = with_shares(experience.rollouts, credits)
    samples = make_samples(rollouts, balance.scatter(credits), precomputed)
    return samples, [credit.advantages for credit in credits]


def _costs(rollouts: Sequence[Rollout], passes: ForwardPasses) -> list[SequenceCost]:
    """Returns what to train on each rollout costs; attention to a prompt that is shared is computed for each."""
    numbers = first_with_prompt(rollouts) if passes.share_prompts else range(len(rollouts))
    pairs = zip(rollouts, numbers, strict=True)
    return [SequenceCost(passes.cost(r.tokens), number, _saved(r, passes)) for r, number in pairs]


def _saved(rollout: Rollout, passes: ForwardPasses) -> float:
    """Returns what is not computed again of a prompt: one of the rollouts in each microbatch computes it."""
    together = max(1, passes.budget.tokens // rollout.tokens)
    tokens = len(rollout.prompt_ids) * (1 - 1 / together)
    return passes.cost.linear * tokens if tokens >= LEAST_REPEATED * rollout.tokens else 0.0
