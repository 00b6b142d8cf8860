"""Preparation of the samples that each rank trains on: balanced over the ranks, scored, with advantages."""

from torch import Tensor

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.distributed.collectives import ranks
from ngrpo.training.load_balancing import LoadBalance
from ngrpo.training.samples import Sample, make_samples, scored_batch, split_credit
from ngrpo.training.scoring import Scorer
from ngrpo.types.experience import Experience


def prepare_samples(experience: Experience, algorithm: Algorithm, scorer: Scorer) -> tuple[list[Sample], list[Tensor]]:
    """Balances the rollouts over the ranks, scores them there, and assigns advantages (a collective).

    Advantages are made where the rollouts were generated, whose groups are whole there.

    Returns:
        What this rank trains on, minibatch by minibatch, and the advantages of the rollouts that it generated; float32
        [A, T] each.
    """
    passes = scorer.forward_passes
    costs = [passes.cost(rollout.tokens) for rollout in experience.rollouts]
    balance = LoadBalance.of(costs, algorithm.optimizer_steps, ranks().data_rank)
    rollouts = balance.scatter(experience.rollouts)
    precomputed = scorer.precompute(rollouts)
    batch = scored_batch(experience, precomputed.map(balance.gather), passes.reduce)
    credits = split_credit(experience.rollouts, algorithm.assign(batch))
    samples = make_samples(rollouts, balance.scatter(credits), precomputed)
    return samples, [credit.advantages for credit in credits]
