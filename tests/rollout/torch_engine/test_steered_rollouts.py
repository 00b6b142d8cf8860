"""Tokens that requests ask for, and what is recorded of the distributions, in the torch engine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from contexts import step_context
from made_rollouts import same_distributions
from test_torch_engine import same

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.decide import Steering, decide
from ngrpo.exploration.runtime.distributions import distributions_of
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.types.distributions import Distributions
from ngrpo.types.rollouts import Request, Rollout
from ngrpo.types.serialization import deserialize_rollout, serialize_rollout
from ngrpo.types.support import NO_ID

FORCED = 30
STRATEGIES: list[Exploration] = [
    TokenSampling(),
    NeighborMixing(rate=0.4, k=3),
    MinPSampling(0.1, largest_support=40),
    TokenSampling(top_k=2, largest_support=40),
    GumbelSoftThinking(top_k=4, tau_g=0.7),
    HybridReasoning(r_min=0.5, r_max=0.9),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


@pytest.mark.parametrize("ids", [None, [[4, 2, 7, NO_ID], [5, NO_ID, NO_ID, NO_ID], [NO_ID] * 4, [3, 2, 1, 0]]])
def test_distributions_of_logits_against_a_loop(ids: list[list[int]] | None) -> None:
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(1)) * 3
    logits[3, 1] = logits[3, 3] = 9.0  # equal ones: the smaller id is the first
    support = None if ids is None else torch.tensor(ids)
    found = distributions_of(logits, support)
    for row in range(4):
        among = list(range(9)) if ids is None or ids[row][0] == NO_ID else [i for i in ids[row] if i != NO_ID]
        p = torch.zeros(9, dtype=torch.float64)
        p[among] = logits[row, among].double().softmax(-1)
        order = sorted(among, key=lambda i: (-float(p[i]), i))[:2]
        assert float(found.entropy[row]) == pytest.approx(-sum(float(x * x.log()) for x in p if x > 0), abs=1e-5)
        assert found.ids[row].tolist() == [*order, NO_ID][:2]
        expected = [float(p[i].log()) for i in order]
        assert found.log_probs[row].tolist() == pytest.approx([*expected, -torch.inf][:2], abs=1e-5)


@pytest.mark.parametrize("ids", [None, [[5, 7, 2, NO_ID]]])
def test_of_logits_that_differ_in_their_last_bits_the_likeliest_is_the_emitted_one(ids: list[list[int]] | None) -> None:
    """Whose log-probs are equal: the place would be none to fork at, and the second token that of the response."""
    logits = torch.zeros(1, 4000)
    logits[0, 5] = 0.01
    logits[0, 7] = torch.nextafter(logits[0, 5], torch.tensor(1.0))
    found = distributions_of(logits, None if ids is None else torch.tensor(ids))
    steering = Steering(torch.tensor([True]))
    step, _ = decide(TokenSampling(), logits, 1.0, step_context(1), None, steering)
    assert found.ids.tolist() == [[int(step.token), 5]] == [[7, 5]]
    if ids is None:
        assert found.log_probs[0, 0] == found.log_probs[0, 1]


def recorded(engine: Any, bound: Any, sampling: Any, requests: Sequence[Request], strategy: Exploration) -> Any:
    return engine.generate(requests, replace(sampling, distributions=True), bound(engine, strategy))


@each_strategy
def test_records_are_those_of_the_scored_distributions_and_change_nothing(
    make_engine, bound, requests, sampling, tiny_source, strategy: Exploration
) -> None:
    engine = make_engine(7)
    rollouts = recorded(engine, bound, sampling, requests, strategy)
    plain = engine.generate(requests, sampling, bound(engine, strategy))
    assert all(one.distributions is None for one in plain)
    assert all(same(replace(a, distributions=None), b) for a, b in zip(rollouts, plain, strict=True))
    model = ScoringModel(tiny_source.load(), bound(engine, strategy).parameters)
    scores = model(pack(rollouts), sampling.temperature, strategy)
    found = Distributions(*(torch.cat(parts) for parts in zip(*(r.distributions for r in rollouts), strict=True)))
    assert [channel.dtype for channel in found] == [torch.float32, torch.int32, torch.float32]
    torch.testing.assert_close(found.entropy, scores.entropy, atol=1e-4, rtol=0)
    tokens = torch.cat([rollout.response_ids for rollout in rollouts])
    log_probs = torch.cat([rollout.log_probs for rollout in rollouts])
    assert bool((found.log_probs[:, 0] >= found.log_probs[:, 1]).all())
    for place in (0, 1):
        at = found.ids[:, place] == tokens
        assert int(at.sum()) > 20
        if strategy.scores_tokens:
            torch.testing.assert_close(found.log_probs[at, place], log_probs[at], atol=1e-5, rtol=0)
            assert bool((log_probs[~at] <= found.log_probs[~at, 0] + 1e-6).all())


@each_strategy
def test_forced_and_likeliest_tokens_are_replayed_with_their_ordinary_log_probs(
    make_engine, bound, requests, sampling, tiny_source, strategy: Exploration
) -> None:
    """Beside requests that ask for nothing, which are as they are without them."""
    engine = make_engine(7)
    engine.lm.double()  # in which the others are the same rows of another batch
    untouched = recorded(engine, bound, sampling, requests, strategy)
    asked = [
        replace(one, forced_token=FORCED if number % 4 == 1 else None, likeliest=number % 2 > 0, explore=number % 8 < 6)
        for number, one in enumerate(requests)
    ]
    rollouts = recorded(engine, bound, sampling, asked, strategy)
    model = ScoringModel(tiny_source.load().double(), bound(engine, strategy).parameters)
    scores = model(pack(rollouts), sampling.temperature, strategy).log_prob
    torch.testing.assert_close(scores.float(), torch.cat([r.log_probs for r in rollouts]), atol=1e-4, rtol=0)
    drawn = 0
    for request, one, other in zip(asked, rollouts, untouched, strict=True):
        if not request.steered and request.explore:
            assert one.response_ids.equal(other.response_ids)
            assert torch.allclose(one.log_probs, other.log_probs, atol=1e-4)
        mixed = set((one.mixture.positions - len(one.prompt_ids)).tolist())
        likeliest = one.distributions.ids[:, 0].tolist()
        start = 0 if request.forced_token is None else 1
        if start:
            assert one.response_ids[0] == FORCED
            assert 0 not in mixed
        agree = [likeliest[at] == one.response_ids[at] for at in range(start, one.length) if at not in mixed]
        assert all(agree) or not request.likeliest
        drawn += agree.count(False)
    assert drawn > 20


def test_a_forced_token_outside_of_its_support_is_scored_by_the_whole_softmax() -> None:
    strategy, logits = TokenSampling(top_k=3, largest_support=8), torch.arange(12.0).repeat(3, 1)
    forced = torch.tensor([2, 10, NO_ID])
    step, log_probs = decide(
        strategy, logits, 1.0, step_context(3), None, Steering(torch.zeros(3, dtype=torch.bool), forced)
    )
    assert step.token[:2].tolist() == [2, 10]
    assert step.support is not None
    assert [bool((row == NO_ID).all()) for row in step.support] == [True, False, False]
    assert float(log_probs[0]) == pytest.approx(float(logits[0].log_softmax(-1)[2]), abs=1e-5)
    assert float(log_probs[1]) == pytest.approx(float(torch.tensor([9.0, 10.0, 11.0]).log_softmax(-1)[1]), abs=1e-5)


def test_a_forced_stop_token_ends_the_response_and_one_after_a_prefix_follows_it(
    make_engine, bound, requests, sampling
) -> None:
    engine = make_engine()
    (stopped,) = recorded(engine, bound, sampling, [replace(requests[0], forced_token=3)], TokenSampling())
    assert (stopped.response_ids.tolist(), str(stopped.stop_reason)) == ([3], "stop")
    whole = engine.generate(requests[:1], sampling, bound(engine, TokenSampling()))[0]
    request = replace(requests[0], prefix=whole.cut(4), forced_token=FORCED)
    (made,) = recorded(engine, bound, sampling, [request], TokenSampling())
    assert made.response_ids[:5].tolist() == [*whole.response_ids[:4].tolist(), FORCED]
    given = made.distributions.map(lambda channel: channel[:4])
    assert (given.entropy.tolist(), given.ids.tolist()) == ([0.0] * 4, [[NO_ID] * 2] * 4)
    assert bool(made.distributions.log_probs[4:].isfinite().all())


def test_a_forced_token_must_be_one_of_the_vocabulary(make_engine, bound, requests, sampling) -> None:
    engine = make_engine()
    with pytest.raises(SettingError, match=r"request 0 has token 10000, which is no id of the model's vocabulary"):
        recorded(engine, bound, sampling, [replace(requests[0], forced_token=10**4)], TokenSampling())


def test_records_survive_serialization(make_engine, bound, requests, sampling) -> None:
    rollouts: list[Rollout] = recorded(make_engine(), bound, sampling, requests[:3], TokenSampling())
    again: list[Rollout] = [deserialize_rollout(serialize_rollout(one)) for one in rollouts]
    assert all(same_distributions(a, b, atol=0.0) for a, b in zip(rollouts, again, strict=True))
    older: Callable[[Rollout], dict] = lambda one: {  # noqa: E731
        name: value for name, value in serialize_rollout(one).items() if name != "distributions"
    }
    assert deserialize_rollout(older(rollouts[0])).distributions is None
