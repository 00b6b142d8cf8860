"""Trees of the torch engine: replayed at every position, and the same beside any others and in any batch."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.scheduling.at_positions import ForkAtEntropy, ForkAtMixtures, ForkAtSurprise
from ngrpo.rollout.scheduling.at_share import ForkAtShare
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.rollout.scheduling.latr import LookaheadTree
from ngrpo.rollout.scheduling.segments import ForkAtSegments
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

NEIGHBOR = NeighborMixing(rate=0.4, k=3)
STRATEGIES: list[Exploration] = [
    TokenSampling(),
    NEIGHBOR,
    MinPSampling(0.1, largest_support=40),
    GumbelSoftThinking(top_k=4, tau_g=0.7),
    HybridReasoning(r_min=0.5, r_max=0.9),
]
SCHEDULERS: list[Scheduler] = [
    ForkAtShare(branching=2, shares=(0.3, 0.6)),
    ForkAtSurprise(),
    ForkAtMixtures(),
    ForkAtSegments(segment=5, branching=2, first=1),
    ForkAtEntropy(branching=2),
    LookaheadTree(second=0.05, gap=0.5, lookahead=(3, 5), distance=0.6, growth=14),
]
each_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda one: type(one).__name__)
Grown = Callable[..., list[list[Rollout]]]


@pytest.fixture
def grown(bound, requests: list[Request], sampling: Sampling) -> Grown:
    def grown(engine: TorchEngine, strategy: Exploration, scheduler: Scheduler, prompts: range) -> list[list[Rollout]]:
        exploration, asked_for = bound(engine, strategy), replace(sampling, distributions=scheduler.reads_distributions)
        trees = grow(
            scheduler,
            [requests[4 * prompt : 4 * prompt + 4] for prompt in prompts],
            sampling.max_new_tokens,
            lambda asked: engine.generate(asked, asked_for, exploration),
        )
        return [tree.leaves for tree in trees]

    return grown


@each_scheduler
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_the_trainer_replays_every_token_of_a_tree(
    make_engine, bound, tiny_source, sampling, grown: Grown, strategy: Exploration, scheduler: Scheduler
) -> None:
    engine = make_engine(max_batch_size=7)
    rollouts = [leaf for leaves in grown(engine, strategy, scheduler, range(6)) for leaf in leaves]
    assert all(rollout.generated == rollout.length for rollout in rollouts)
    assert sum(rollout.path is not None for rollout in rollouts) > 10
    model = ScoringModel(tiny_source.load(), bound(engine, strategy).parameters)
    scores = model(pack(rollouts), sampling.temperature, strategy).log_prob
    recorded = torch.cat([rollout.log_probs for rollout in rollouts])
    torch.testing.assert_close(scores, recorded, atol=1e-4, rtol=0)
    for rollout in rollouts:
        assert (rollout.support is not None and bool(rollout.support.counts.all())) == bool(strategy.support)
    if strategy.mixes:
        plain = model(pack([rollout.without_mixtures() for rollout in rollouts]), sampling.temperature, strategy)
        assert float((plain.log_prob - recorded).detach().abs().max()) > 0.01


@each_scheduler
def test_a_tree_is_the_same_in_any_batch(make_engine, grown: Grown, scheduler: Scheduler) -> None:
    """The model computes in float64, where no draw is a tie that another batch breaks otherwise."""
    trees = []
    for size in (64, 3):
        engine = make_engine(max_batch_size=size)
        engine.lm.double()
        trees.append(grown(engine, NEIGHBOR, scheduler, range(6)))
        trees.append([grown(engine, NEIGHBOR, scheduler, range(prompt, prompt + 1))[0] for prompt in range(6)])
    first, *others = trees
    for other in others:
        for leaves, same in zip(first, other, strict=True):
            assert [(leaf.key, leaf.path) for leaf in leaves] == [(leaf.key, leaf.path) for leaf in same]
            for leaf, again in zip(leaves, same, strict=True):
                assert leaf.response_ids.equal(again.response_ids)
                assert leaf.mixture.positions.equal(again.mixture.positions)
                torch.testing.assert_close(leaf.log_probs, again.log_probs, atol=1e-6, rtol=0)


def test_segments_leave_a_response_as_it_is_without_them(make_engine, bound, requests, sampling, grown: Grown) -> None:
    engine = make_engine()
    engine.lm.double()
    whole = {one.key: one for one in engine.generate(requests, sampling, bound(engine, NEIGHBOR))}
    found = 0
    for leaves in grown(engine, NEIGHBOR, ForkAtSegments(segment=4, branching=2, first=2), range(6)):
        for leaf in leaves:
            if leaf.key in whole:
                found += 1
                assert leaf.response_ids.equal(whole[leaf.key].response_ids)
                torch.testing.assert_close(leaf.log_probs, whole[leaf.key].log_probs, atol=1e-6, rtol=0)
    assert found == 12


def test_siblings_share_the_prefill_of_what_they_have_in_common(make_engine, grown: Grown, monkeypatch) -> None:
    """Six prompts, each with a response that forks into four at one place: as many beginnings."""
    counted = []
    made = TorchEngine._forward
    monkeypatch.setattr(
        TorchEngine, "_forward", lambda self, inputs, *rest: counted.append(inputs.shape) or made(self, inputs, *rest)
    )
    leaves = grown(make_engine(), NEIGHBOR, ForkAtShare(), range(6))
    prefills = [shape[1] for shape in counted if shape[0] == 1 and shape[1] > 1]
    prompts = sum(len(one[0].prompt_ids) for one in leaves)
    assert prefills == [prompts, prompts + sum(one[0].length // 2 for one in leaves)]
