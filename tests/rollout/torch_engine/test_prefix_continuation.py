"""Rollouts that start from a prefix: they go on as the rollout that it was cut out of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.model_check.own_scores import own_scores
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.types.rollouts import Request, Rollout

END = 5
NEIGHBOR = NeighborMixing(rate=0.4, k=3)
STRATEGIES: list[Exploration] = [
    TokenSampling(),
    NEIGHBOR,
    GumbelSoftThinking(top_k=4, tau_g=0.7),
    LatentGumbel(top_k=4),
    GaussianTopK(k=5),
    GaussianSoftTokens(),
    HybridReasoning(r_min=0.5, r_max=0.9),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=[type(s).__name__ for s in STRATEGIES])


@dataclass(frozen=True)
class UntilTheEnd(Exploration):
    """Mixes at every step before the end token, at none after it."""

    width: int = 2
    end_token: str | None = "</think>"

    def step(self, logits, ctx):
        probs, ids = logits.softmax(-1).topk(2)
        token = ctx.sample(logits)
        return Step(token, ~ctx.ended & ~ctx.is_end(token), ids, probs / probs.sum(-1, keepdim=True))


def cut(request: Request, rollout: Rollout, length: int) -> Request:
    return replace(request, prefix=rollout.cut(length)) if length else request


def lengths(rollouts: Sequence[Rollout]) -> list[int]:
    """Prefixes of all lengths, by turns none; a whole response only where it can go on."""
    return [(3 * number) % rollout.length for number, rollout in enumerate(rollouts)]


@each_strategy
def test_a_continuation_with_the_same_key_is_the_uncut_rollout(make_engine, bound, requests, sampling, strategy):
    """The model computes in float64: a prefill is rounded otherwise than the decode steps that it stands for."""
    engine = make_engine()
    engine.lm.double()
    exploration = bound(engine, strategy)
    whole = engine.generate(requests, sampling, exploration)
    given = lengths(whole)
    assert (min(given), max(given) > 15) == (0, True)
    again = engine.generate([cut(*parts) for parts in zip(requests, whole, given, strict=True)], sampling, exploration)
    for uncut, made, length in zip(whole, again, given, strict=True):
        assert (made.prefix_length, made.generated) == (length, uncut.length - length)
        assert made.response_ids.equal(uncut.response_ids)
        assert made.stop_reason is uncut.stop_reason
        assert made.mixture.positions.equal(uncut.mixture.positions)
        for ours, theirs in zip(made.mixture.record, uncut.mixture.record, strict=True):
            if theirs is not None:
                torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
        assert not made.log_probs[:length].any()
        assert float((made.generated_log_probs - uncut.log_probs[length:]).abs().max()) < 1e-6


@each_strategy
def test_the_trainer_replays_a_continuation(make_engine, bound, requests, sampling, tiny_source, strategy):
    """With other keys than those of the rollouts that the prefixes were cut out of."""
    engine = make_engine(max_batch_size=7)
    exploration = bound(engine, strategy)
    whole = engine.generate(requests, sampling, exploration)
    asked = [
        replace(cut(request, rollout, length), key=request.key + 1)
        for request, rollout, length in zip(requests, whole, lengths(whole), strict=True)
    ]
    rollouts = engine.generate(asked, sampling, exploration)
    model = ScoringModel(tiny_source.load(), exploration.parameters)
    recorded = torch.cat([rollout.generated_log_probs for rollout in rollouts])
    scores = model(pack(rollouts), sampling.temperature, strategy).log_prob
    allowed = 1e-3 if strategy.noisy else 1e-4
    torch.testing.assert_close(scores, recorded, atol=allowed, rtol=0)
    for together in (False, True):
        own = own_scores(model, rollouts, sampling.temperature, strategy, together)
        torch.testing.assert_close(own, recorded, atol=allowed, rtol=0)
    if strategy.mixes:
        plain = [replace(r, mixture=r.without_given_mixtures().mixture) for r in rollouts]
        ignored = model(pack(plain), sampling.temperature, strategy).log_prob
        assert float((ignored - recorded).abs().max()) > 0.01


def test_continuations_of_one_prefix_do_not_depend_on_each_other(make_engine, bound, requests, sampling):
    engine = make_engine()
    exploration = bound(engine, NEIGHBOR)
    whole = engine.generate(requests[:1], sampling, exploration)[0]
    asked = [replace(cut(requests[0], whole, 6), key=key) for key in range(5)]
    together = engine.generate(asked, sampling, exploration)
    assert len({tuple(rollout.response_ids.tolist()) for rollout in together}) == 5
    for request, rollout in zip(asked, together, strict=True):
        alone = engine.generate([request], sampling, exploration)[0]
        assert alone.response_ids.equal(rollout.response_ids)
        torch.testing.assert_close(alone.log_probs, rollout.log_probs, atol=1e-5, rtol=0)


def test_equal_tokens_with_other_mixtures_are_other_prefixes(make_engine, bound, requests, sampling):
    engine = make_engine()
    exploration = bound(engine, NEIGHBOR)
    whole = engine.generate(requests[:1], sampling, exploration)[0]
    mixed = cut(requests[0], whole, 8)
    plain = replace(mixed, prefix=replace(mixed.prefix, mixture=None))
    assert len(mixed.prefix.mixture.positions) > 0
    first, second = engine.generate([mixed, plain], sampling, exploration)
    assert first.response_ids[8:].tolist() != second.response_ids[8:].tolist()
    assert len(second.mixture.positions) == len(second.without_given_mixtures().mixture.positions)


def test_a_prefix_that_ends_the_reasoning_has_ended_it(make_engine, bound, requests, sampling):
    engine = make_engine()
    exploration = bound(engine, UntilTheEnd())
    whole = engine.generate(requests[:1], sampling, exploration)[0]
    before = replace(whole.cut(4), ids=(7, 8, 9, 10))
    after = replace(before, ids=(7, END, 9, 10), mixture=None)
    first, second = engine.generate(
        [replace(requests[0], prefix=one) for one in (before, after)], sampling, exploration
    )
    assert len(first.without_given_mixtures().mixture.positions) > 0
    assert len(second.mixture.positions) == 0


def test_a_request_without_exploration_goes_on_plainly_from_a_mixed_prefix(make_engine, bound, requests, sampling):
    engine = make_engine()
    exploration = bound(engine, NEIGHBOR)
    whole = engine.generate(requests[:1], sampling, exploration)[0]
    made = engine.generate([replace(cut(requests[0], whole, 8), explore=False)], sampling, exploration)[0]
    assert len(made.mixture.positions) > 0
    assert len(made.without_given_mixtures().mixture.positions) == 0


def test_given_tokens_are_not_reported_as_generated(make_engine, bound, requests, sampling):
    engine = make_engine(max_batch_size=4)
    exploration = bound(engine, NEIGHBOR)
    whole = engine.generate(requests[:8], sampling, exploration)
    asked = [cut(request, rollout, rollout.length // 2) for request, rollout in zip(requests, whole, strict=False)]
    reported: list[tuple[int, int]] = []
    made = engine.generate(asked, sampling, exploration, lambda *numbers: reported.append(numbers))
    assert reported[-1] == (8, sum(rollout.generated for rollout in made))
    assert all(tokens > 0 for _, tokens in reported)


def test_a_compiled_engine_goes_on_from_a_prefix(make_engine, bound, requests, sampling):
    plain, engine = make_engine(), make_engine(compile=True)
    whole = plain.generate(requests[:4], sampling, bound(plain, NEIGHBOR))
    asked = [cut(request, rollout, rollout.length // 2) for request, rollout in zip(requests, whole, strict=False)]
    for uncut, made in zip(whole, engine.generate(asked, sampling, bound(engine, NEIGHBOR)), strict=True):
        assert made.response_ids.equal(uncut.response_ids)
