"""Token weights of an optimiser batch, made before its first microbatch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ngrpo.algo.moments import Reduce
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import WeighedTokens
from ngrpo.distributed.collectives import gathered
from ngrpo.exploration.random import uniform
from ngrpo.training.samples import Sample
from ngrpo.types.paths import members, shares_among
from ngrpo.types.rollouts import Rollout


def weighed(samples: Sequence[Sample], algorithm: Algorithm, reduce: Reduce) -> list[Sample]:
    """Returns the samples of an optimiser batch with token weights, where the algorithm needs them (a collective).

    Args:
        samples: this rank's part; scored before the first step.
        algorithm: weighs the tokens.
        reduce: over the data ranks.
    """
    if not algorithm.weighs_batch:
        return list(samples)
    lengths = [sample.rollout.generated for sample in samples]
    old, engine = _packed([s.old_log_prob for s in samples]), [s.rollout.generated_log_probs for s in samples]
    made = algorithm.weigh(_tokens(samples, old, reduce), old - torch.cat(engine), torch.tensor(lengths))
    nothing: list[Tensor | None] = [None] * len(samples)
    penalties = nothing if made.penalty is None else torch.split(made.penalty.float(), lengths)
    weights, counted_parts = torch.split(made.weight.float(), lengths, dim=-1), torch.split(made.counted, lengths)
    parts = zip(samples, weights, counted_parts, penalties, strict=True)
    chosen = [
        replace(s, token_weight=weight, counted=counted, penalty=penalty) for s, weight, counted, penalty in parts
    ]
    once = algorithm.correction.rejects and algorithm.shared_tokens == "once"
    return _shared_by_the_rest(chosen) if once else chosen


def _shared_by_the_rest(samples: Sequence[Sample]) -> list[Sample]:
    """Returns samples whose common tokens count once among the responses that still take part (a collective).

    One that is rejected as a whole is none of them, on whatever rank it is.
    """
    paths = [sample.rollout.path for sample in samples]
    everyone = gathered(members(paths, [sample.tokens > 0 for sample in samples]))
    shares = shares_among(paths, [sample.rollout.length for sample in samples], sum(everyone, Counter()))
    return [replace(sample, share=share) for sample, share in zip(samples, shares, strict=True)]


def _tokens(samples: Sequence[Sample], old: Tensor, reduce: Reduce) -> WeighedTokens:
    entropies = [sample.old_entropy for sample in samples]
    return WeighedTokens(
        log_prob=old,
        entropy=torch.zeros_like(old) if None in entropies else _packed(entropies),  # a correction needs none
        advantages=torch.cat([sample.advantage for sample in samples], dim=-1),
        uniform=torch.cat([_draws(sample.rollout) for sample in samples]),
        reduce=lambda value, op: reduce(value, op).cpu(),
    )


def _packed(parts: Sequence[Tensor | None]) -> Tensor:
    known = [part for part in parts if part is not None]
    assert len(known) == len(parts), "every rollout was scored before the first step"
    return torch.cat(known)


def _draws(rollout: Rollout) -> Tensor:
    """Returns a uniform draw for each generated token, by the request's key and the token's slot."""
    first = len(rollout.prompt_ids) + rollout.prefix_length
    slots = torch.arange(first, first + rollout.generated)
    return uniform(torch.tensor(rollout.key), slots, "token_weight")
