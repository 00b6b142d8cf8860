"""The weights of a minibatch, from the scores before its rollout batch's first step."""

from dataclasses import replace

import pytest
import torch
from made_rollouts import rollout
from over_ranks import alone, in_ranks
from update_probe import ALGORITHMS

from ngrpo.algo.token_weight import ClipCov, ForkingTokens, KlCov
from ngrpo.exploration.random import uniform
from ngrpo.training.samples import Sample, batch_totals
from ngrpo.training.token_weights import weighed

GRPO = replace(ALGORITHMS["grpo"], kl_coef=0.0)


def samples() -> list[Sample]:
    made = []
    for i, length in enumerate((2, 5, 3, 4)):
        generator = torch.Generator().manual_seed(i)
        old, entropy = -torch.rand(length, generator=generator), torch.rand(length, generator=generator)
        advantage = torch.full((1, length), 1.0 - i)
        one = replace(rollout([1, 2], [3] * length), key=70 + i)
        made.append(Sample(one, advantage, old_log_prob=old, old_entropy=entropy))
    return made


def test_what_needs_no_weights_is_left_as_it_is() -> None:
    given = samples()
    assert weighed(given, GRPO, alone) == given
    assert [sample.tokens for sample in given] == [2, 5, 3, 4]


@pytest.mark.parametrize("weighting", [ForkingTokens(0.4), ClipCov(0.3, -9.0, 9.0), KlCov(0.3)], ids=str)
def test_neither_order_nor_rank_of_a_sample_matters(weighting) -> None:
    algorithm, given = replace(GRPO, token_weight=weighting), samples()
    whole = weighed(given, algorithm, alone)
    halves = in_ranks(lambda part, reduce: weighed(part, algorithm, reduce), [given[:1], given[1:]])
    reversed_ = weighed(given[::-1], algorithm, alone)[::-1]
    for one, *others in zip(whole, [*halves[0], *halves[1]], reversed_, strict=True):
        for other in others:
            assert torch.equal(one.token_weight, other.token_weight)
            assert torch.equal(one.counted, other.counted)
            assert (one.penalty is None) == (other.penalty is None)
            if one.penalty is not None:
                assert torch.equal(one.penalty, other.penalty)


def test_totals_are_of_the_tokens_that_count() -> None:
    made = weighed(samples(), replace(GRPO, token_weight=ForkingTokens(0.25)), alone)
    counted = torch.cat([sample.counted for sample in made])
    entropy = torch.cat([sample.old_entropy for sample in made])
    assert torch.equal(counted, entropy >= torch.quantile(entropy, 0.75))
    totals = batch_totals(made, alone)
    assert totals.tokens == int(counted.sum())
    assert totals.sequences == sum(bool(sample.counted.any()) for sample in made)


def test_draws_are_those_of_key_and_slot() -> None:
    """Half of the tokens are dropped: those of the smaller draws."""
    given = samples()
    made = weighed(given, replace(GRPO, token_weight=ClipCov(0.5, -9.0, 9.0)), alone)
    draws = torch.cat(
        [uniform(torch.tensor(s.rollout.key), torch.arange(2, 2 + s.rollout.length), "token_weight") for s in given]
    )
    dropped = torch.cat([sample.token_weight[0] for sample in made]) == 0
    assert int(dropped.sum()) == 7
    assert draws[dropped].max() < draws[~dropped].min()
