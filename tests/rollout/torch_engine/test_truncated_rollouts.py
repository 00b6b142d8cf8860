"""Rollouts of truncated distributions: the trainer scores them on the sets that the engine recorded."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.token import TokenSampling
from ngrpo.model_check.own_scores import own_scores
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Rollout
from ngrpo.types.support import NO_ID

STRATEGIES: list[Exploration] = [
    MinPSampling(0.1, largest_support=128),
    MinPSampling(0.02, largest_support=4),
    TokenSampling(top_p=0.95, largest_support=128),
    TokenSampling(top_k=20, largest_support=1),
    TokenSampling(top_k=1, largest_support=1),
    TokenSampling(top_k=7, top_p=0.8, largest_support=128),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


def log_probs(rollouts: list[Rollout]) -> Tensor:
    return torch.cat([rollout.generated_log_probs for rollout in rollouts])


def sets_of(rollout: Rollout) -> list[list[int]]:
    assert rollout.support is not None
    return [[v for v in row if v != NO_ID] for row in rollout.support.rows().tolist()]


@each_strategy
def test_the_trainer_replays_what_the_engine_recorded(
    make_engine, bound, requests, sampling, tiny_source, strategy
) -> None:
    engine = make_engine(7)
    rollouts = engine.generate(requests, sampling, bound(engine, strategy))
    model = ScoringModel(tiny_source.load())
    for rollout in rollouts:
        sets = sets_of(rollout)
        assert len(sets) == rollout.length
        assert all(token in one for token, one in zip(rollout.response_ids.tolist(), sets, strict=True))
        assert max(len(one) for one in sets) <= strategy.support
    scores = model(pack(rollouts), sampling.temperature, strategy)
    torch.testing.assert_close(scores.log_prob, log_probs(rollouts), atol=1e-4, rtol=0)
    slow = own_scores(model, rollouts, sampling.temperature, strategy, together=False)
    torch.testing.assert_close(scores.log_prob, slow, atol=1e-4, rtol=0)
    if strategy.support > 1:
        unrecorded = model(pack([replace(r, support=None) for r in rollouts]), sampling.temperature, strategy)
        assert float((unrecorded.log_prob - scores.log_prob).detach().abs().max()) > 0.01


def obvious(model: ScoringModel, rollout: Rollout, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of a rollout: transformers' logits, the whole softmax, cut and renormalised."""
    ids = torch.cat((rollout.prompt_ids, rollout.response_ids))
    logits = model.lm(input_ids=ids[None]).logits[0, len(rollout.prompt_ids) - 1 : -1]
    scores, entropies = [], []
    for row, token, kept in zip(logits / temperature, rollout.response_ids.tolist(), sets_of(rollout), strict=True):
        probs = row.softmax(-1)
        probs = probs[kept] / probs[kept].sum()
        scores.append(probs[kept.index(token)].log())
        entropies.append(-(probs * probs.log()).sum())
    return torch.stack(scores), torch.stack(entropies)


@pytest.mark.parametrize("strategy", STRATEGIES[:4], ids=str)
def test_gradients_are_those_of_the_obvious_way(make_engine, bound, requests, sampling, tiny_source, strategy) -> None:
    engine = make_engine()
    rollouts = engine.generate(requests[:5], sampling, bound(engine, strategy))
    model, other = (ScoringModel(source.load()) for source in (tiny_source, tiny_source))
    other.lm.set_attn_implementation("eager")
    with torch.no_grad():  # another policy than that of the rollouts, under which other tokens are the likeliest
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            noise = torch.randn(one.shape, generator=torch.Generator().manual_seed(one.numel()))
            one.add_(noise, alpha=0.05)
            two.copy_(one)
    model.head_rows = 17
    scores = model(pack(rollouts), sampling.temperature, strategy, entropy_gradient=True)
    expected = [
        torch.cat(both) for both in zip(*(obvious(other, r, sampling.temperature) for r in rollouts), strict=True)
    ]
    weights = torch.linspace(-1, 1, len(expected[0]))
    for made, wanted in zip(scores, expected, strict=True):
        torch.testing.assert_close(made, wanted, atol=1e-4, rtol=0)
    ((weights * scores.log_prob).sum() + (weights.cos() * scores.entropy).sum()).backward()
    ((weights * expected[0]).sum() + (weights.cos() * expected[1]).sum()).backward()
    for (name, one), two in zip(model.lm.named_parameters(), other.lm.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, atol=1e-4, rtol=1e-3, msg=name)


@each_strategy
def test_records_do_not_depend_on_batch_bursts_or_compilation(
    make_engine, tiny_source, bound, requests, sampling, strategy
):
    engine = make_engine()
    alone = engine.generate(requests, sampling, bound(engine, strategy))
    for made in (make_engine(5), TorchEngine(tiny_source, 6, burst=8)):
        made.start(torch.device("cpu"))
        for one, other in zip(alone, made.generate(requests, sampling, bound(made, strategy)), strict=True):
            assert one.response_ids.equal(other.response_ids)
            assert [set(kept) for kept in sets_of(one)] == [set(kept) for kept in sets_of(other)]
            torch.testing.assert_close(one.log_probs, other.log_probs, atol=1e-4, rtol=0)


def test_plain_requests_beside_truncated_ones_are_of_the_whole_vocabulary(
    make_engine, bound, requests, sampling, tiny_source
) -> None:
    engine, strategy = make_engine(), STRATEGIES[0]
    asked = [replace(request, explore=number % 3 > 0) for number, request in enumerate(requests)]
    rollouts = engine.generate(asked, sampling, bound(engine, strategy))
    plain = engine.generate(requests, sampling, bound(engine, TokenSampling()))
    for number, (rollout, other) in enumerate(zip(rollouts, plain, strict=True)):
        assert rollout.support is not None
        assert bool(rollout.support.counts.all()) == (number % 3 > 0)
        if number % 3 == 0:
            assert rollout.response_ids.equal(other.response_ids)
            torch.testing.assert_close(rollout.log_probs, other.log_probs)
        assert other.support is None
    scores = ScoringModel(tiny_source.load())(pack(rollouts), sampling.temperature, strategy)
    torch.testing.assert_close(scores.log_prob, log_probs(rollouts), atol=1e-4, rtol=0)


def test_an_exact_engine_and_trainer_agree_beside_plain_requests(tiny_source, tiny_vocabulary, requests, sampling):
    from ngrpo.modeling.exact.model import make_exact

    engine, strategy = TorchEngine(tiny_source, 7, exact=True), STRATEGIES[0]
    engine.start(torch.device("cpu"))
    asked = [replace(request, explore=number % 3 > 0) for number, request in enumerate(requests)]
    rollouts = engine.generate(asked, sampling, bind(strategy, engine.embedding(), tiny_vocabulary))
    lm = tiny_source.load()
    make_exact(lm)
    assert ScoringModel(lm)(pack(rollouts), sampling.temperature, strategy).log_prob.equal(log_probs(rollouts))


def test_a_response_goes_on_from_a_prefix_as_it_would_have(make_engine, bound, requests, sampling, tiny_source) -> None:
    engine, strategy = make_engine(), STRATEGIES[2]
    whole = engine.generate(requests, sampling, bound(engine, strategy))
    given = [min(5, rollout.length - 1) for rollout in whole]
    chosen = [number for number, count in enumerate(given) if count > 0]
    asked = [replace(requests[n], prefix=whole[n].cut(given[n])) for n in chosen]
    made = engine.generate(asked, sampling, bound(engine, strategy))
    for n, rollout in zip(chosen, made, strict=True):
        assert rollout.response_ids.equal(whole[n].response_ids)
        assert rollout.support is not None
        assert rollout.support.counts[: given[n]].tolist() == [0] * given[n]
        assert sets_of(rollout)[given[n] :] == sets_of(whole[n])[given[n] :]
    scores = ScoringModel(tiny_source.load())(pack(made), sampling.temperature, strategy)
    torch.testing.assert_close(scores.log_prob, log_probs(made), atol=1e-4, rtol=0)
