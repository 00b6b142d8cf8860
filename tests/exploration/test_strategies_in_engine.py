"""Every strategy that does more than mix fixed neighbours: rollouts of the torch engine, replayed by the trainer."""

import random
from dataclasses import replace

import pytest
import torch

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.neighbor_selective import SelectiveNeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.types.rollouts import Rollout

STRATEGIES: list[Exploration] = [
    SoftThinking(top_n=4, rate=0.6),
    GumbelSoftThinking(top_k=4, tau_g=0.7),
    GumbelSoftThinking(top_k=6, density="masked_mean"),
    LatentGumbel(top_k=4),
    LatentGumbel(top_k=4, one_sided=False, top_p=1.0),
    GaussianSoftTokens(),
    GaussianSoftTokens(tau=0.0001),
    GaussianTopK(k=5),
    HybridReasoning(r_min=0.5, r_max=0.9),
    AnnealedNeighborMixing(rate_start=0.5, schedule_iterations=10),
    EntropyNeighborMixing(rate_min=0.2, rate_max=0.8),
    SelectiveNeighborMixing(rate=0.9, max_cosine=0.999),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=[type(s).__name__ for s in STRATEGIES])


def tolerance(strategy: Exploration) -> float:
    """Of log-probs. A Gaussian log-density moves with xi (h - h') / sigma: it magnifies an error of the logits."""
    return 1e-3 if strategy.noisy else 1e-4


def scores(model: ScoringModel, rollouts: list[Rollout], strategy: Exploration, temperature: float) -> torch.Tensor:
    return model(pack(rollouts), temperature, strategy).log_prob


@pytest.fixture(scope="module")
def parameters(tiny_source):
    """What each strategy has learned; not its initial values."""
    dim = tiny_source.config().hidden_size
    return lambda s: {name: value * 1.5 for name, value in s.initial_parameters(dim).items()}


@each_strategy
def test_the_trainer_replays_what_the_engine_recorded(
    make_engine, bound, requests, sampling, tiny_source, parameters, strategy
):
    engine, learned = make_engine(), parameters(strategy)
    rollouts = engine.generate(requests, sampling, replace(bound(engine, strategy), parameters=learned))
    model = ScoringModel(tiny_source.load(), learned)
    recorded = torch.cat([r.log_probs for r in rollouts])
    made = scores(model, rollouts, strategy, sampling.temperature)
    torch.testing.assert_close(made, recorded, atol=tolerance(strategy), rtol=0)
    assert sum(len(r.mixture.positions) for r in rollouts) > 50
    made.sum().backward()
    gradients = [p.grad for p in model.parameters()]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)
    trained = dict(model.learned.named_parameters())
    assert all(bool(trained[name].grad.any()) for name in learned)

    with torch.no_grad():
        ignored = scores(model, [r.without_mixtures() for r in rollouts], strategy, sampling.temperature)
    assert float((ignored - recorded).abs().max()) > 0.01


@each_strategy
def test_rollouts_do_not_depend_on_batch_size_or_order(make_engine, bound, requests, sampling, strategy):
    """Briefly: where vectors are fed back, the last bits of another batch size grow about twofold a step."""
    engine, small, sampling = make_engine(64), make_engine(5), replace(sampling, max_new_tokens=5)
    together = engine.generate(requests, sampling, bound(engine, strategy))
    order = list(range(len(requests)))
    random.Random(0).shuffle(order)
    shuffled = small.generate([requests[i] for i in order], sampling, bound(small, strategy))
    for place, i in enumerate(order):
        a, b = together[i], shuffled[place]
        assert a.response_ids.tolist() == b.response_ids.tolist()
        assert a.mixture.positions.tolist() == b.mixture.positions.tolist()
        torch.testing.assert_close(a.log_probs, b.log_probs, atol=tolerance(strategy), rtol=0)


@each_strategy
def test_only_the_declared_channels_are_recorded(make_engine, bound, requests, sampling, strategy):
    engine = make_engine()
    record = engine.generate(requests[:4], sampling, bound(engine, strategy))[0].mixture.record
    assert record.ids.shape[1] == record.weights.shape[1] == strategy.width
    filled = {"scores": strategy.scored, "vector": strategy.dense, "noise": strategy.noisy}
    assert {name: getattr(record, name) is not None for name in filled} == filled


@each_strategy
def test_nothing_is_mixed_after_the_end_token(make_engine, bound, requests, sampling, strategy):
    engine = make_engine()
    free = bound(engine, replace(strategy, end_token=None))
    first = torch.cat([r.response_ids[:4] for r in engine.generate(requests, sampling, free)])
    ends = tuple(first.bincount().topk(2).indices.tolist())
    rollouts = engine.generate(requests, sampling, replace(free, end_ids=ends))
    ended = 0
    for r in rollouts:
        at = torch.isin(r.response_ids, torch.tensor(ends)).nonzero()[:, 0]
        if len(at):
            ended += 1
            last = len(r.prompt_ids) + int(at[0])
            assert not bool((r.mixture.positions > last).any())
            in_place = bool((r.mixture.positions == last).any())
            assert in_place == isinstance(strategy, GumbelSoftThinking)  # its action there is scored
    assert ended > 5


def test_the_gumbel_end_token_is_fed_plainly(make_engine, bound, requests, sampling):
    engine, strategy = make_engine(), GumbelSoftThinking(top_k=4, tau_g=0.7)
    made = replace(bound(engine, strategy), end_ids=(9, 10, 11, 12))
    checked = 0
    for r in engine.generate(requests, sampling, made):
        ends = torch.isin(r.response_ids[r.mixture.positions - len(r.prompt_ids)], torch.tensor(made.end_ids))
        for ids, weights in zip(r.mixture.record.ids[ends], r.mixture.record.weights[ends], strict=True):
            assert int(ids[0]) in made.end_ids
            assert weights.tolist() == [1.0, 0.0, 0.0, 0.0]
            checked += 1
    assert checked > 5


@pytest.mark.parametrize("strategy", [GaussianTopK(k=5), GaussianSoftTokens()])
def test_two_requests_of_one_prompt_have_different_noise(make_engine, bound, requests, sampling, strategy):
    engine = make_engine()
    group = engine.generate(requests[:4], sampling, bound(engine, strategy))
    assert len({tuple(r.response_ids.tolist()) for r in group}) > 1


def test_equal_groups_of_soft_thinking_are_what_the_warning_says(make_engine, bound, requests, sampling):
    engine = make_engine()
    for rate, kinds in ((1.0, 1), (0.5, 4)):
        group = engine.generate(requests[:4], sampling, bound(engine, SoftThinking(rate=rate, end_token=None)))
        assert len({tuple(r.response_ids.tolist()) for r in group}) == kinds
        assert SoftThinking(rate=rate).deterministic == (kinds == 1)


def test_rates_follow_the_finished_iterations(make_engine, bound, requests, sampling, tiny_source):
    """The same requests are mixed less and more narrowly later on, and replayed as before."""
    engine = make_engine()
    made = bound(engine, AnnealedNeighborMixing(rate_start=0.8, rate_end=0.1, schedule_iterations=6, end_token=None))
    model, shares = ScoringModel(tiny_source.load()), []
    for finished, k in ((0, 5), (3, 4), (6, 2), (60, 2)):
        rollouts = engine.generate(requests, sampling, made.after(finished))
        weights = torch.cat([r.mixture.record.weights for r in rollouts])
        assert int((weights > 0).sum(-1).max()) == k
        shares.append(len(weights) / sum(r.length for r in rollouts))
        recorded = torch.cat([r.log_probs for r in rollouts])
        with torch.no_grad():
            torch.testing.assert_close(
                scores(model, rollouts, made.strategy, sampling.temperature), recorded, atol=1e-4, rtol=0
            )
    assert shares[:3] == pytest.approx([0.8, 0.45, 0.1], abs=0.08)
    assert shares[2] == shares[3]
