"""Entropy and scores of a packed batch."""

import math

import torch
from made_rollouts import rollout
from torch.distributions import Categorical

from ngrpo.exploration.base import Exploration, RowContext, Step
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel, entropy_of

BATCH = pack([rollout([7, 8, 9], [10, 11], {3: {20: 0.75, 21: 0.25}}), rollout([12], [13])])


def test_entropy_is_that_of_the_softmax():
    logits = torch.randn(6, 11) * 4
    torch.testing.assert_close(entropy_of(logits), Categorical(logits=logits).entropy())
    assert math.isclose(float(entropy_of(torch.zeros(1, 8))), math.log(8), rel_tol=1e-6)


def test_a_logit_of_minus_infinity_adds_nothing():
    logits = torch.tensor([[1.0, -math.inf, 0.5], [-math.inf, 3.0, -math.inf]])
    torch.testing.assert_close(entropy_of(logits)[:1], entropy_of(torch.tensor([[1.0, 0.5]])))
    assert entropy_of(logits)[1] == 0.0


def test_temperature_scales_log_probs_and_entropy(tiny_source: ModelSource):
    model = ScoringModel(tiny_source.load())
    seen: list[torch.Tensor] = []

    class Spy(TokenSampling):
        def log_prob(self, logits: torch.Tensor, step: Step, ctx: RowContext) -> torch.Tensor:
            seen.append(logits)
            return super().log_prob(logits, step, ctx)

    warm, cold = (model(BATCH, temperature, Spy()) for temperature in (1.0, 0.5))
    expected = (seen[0] * 2).log_softmax(-1)[torch.arange(3), [10, 11, 13]]
    torch.testing.assert_close(cold.log_prob, expected)
    torch.testing.assert_close(cold.entropy, entropy_of(seen[0] * 2))
    assert not torch.allclose(warm.entropy, cold.entropy)
    assert warm.log_prob.requires_grad
    assert not warm.entropy.requires_grad


def test_the_strategy_scores_its_own_steps(tiny_source: ModelSource):
    """A strategy with a density of its own sees logits and record of each response token."""

    class FirstWeight(Exploration):
        def step(self, logits, ctx):
            raise NotImplementedError

        def log_prob(self, logits, step, ctx):
            return logits[:, 0] * 0 + torch.where(step.mixed, step.weights[:, 0], -1.0)

    scores = ScoringModel(tiny_source.load())(BATCH, 1.0, FirstWeight())
    assert scores.log_prob.tolist() == [0.75, -1.0, -1.0]
