"""The sparse Gaussian, term by term."""

from typing import Any

import pytest
import torch
from contexts import step_context
from torch.nn.functional import embedding

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.random import normal
from ngrpo.exploration.vocabulary import Vocabulary

STRATEGY = GaussianTopK(k=2, tau=0.5, scale=0.5)
E = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
LOGITS = torch.tensor([[0.0, 2.0, 1.0, -1.0, 1.5, 0.5], [1.0, 0.0, 0.0, 3.0, 0.0, 0.0]])


def decided() -> tuple[Step, StepContext]:
    context = step_context(2, embedding=E, tables=STRATEGY.prepare(E, Vocabulary(6, frozenset(), {})))
    return STRATEGY.step(LOGITS, context), context


def test_the_vector_is_the_mean_of_the_most_likely_plus_noise_drawn_from_the_key():
    step, context = decided()
    assert step.token.tolist() == [1, 3]
    assert step.ids.tolist() == [[1, 4], [3, 0]]
    fed = STRATEGY.inputs(lambda ids: embedding(ids, E), step, context, {})
    sigma = 0.5 * float(E.square().mean().sqrt())
    for row in range(2):
        weights = (LOGITS[row, step.ids[row]] / 0.5).softmax(-1)
        noise = torch.tensor([float(normal(context.keys[row], context.positions[row], "noise", j)) for j in range(3)])
        torch.testing.assert_close(fed[row], weights @ E[step.ids[row]] + sigma * noise)


def test_the_density_is_that_of_the_truncated_mean():
    step, context = decided()
    fed = STRATEGY.inputs(lambda ids: embedding(ids, E), step, context, {})
    sigma = 0.5 * float(E.square().mean().sqrt())
    other = LOGITS * 0.7
    for row, made in enumerate(STRATEGY.log_prob(other, step, context).tolist()):
        mean = (other[row, step.ids[row]] / 0.5).softmax(-1) @ E[step.ids[row]]
        assert made == pytest.approx(float(-((fed[row] - mean) ** 2).sum() / (2 * sigma**2)), rel=1e-4)
    # On-policy it is the noise's own: -|xi|^2 / 2.
    own = STRATEGY.log_prob(LOGITS, step, context)
    torch.testing.assert_close(own, -context.noise(3).square().sum(-1) / 2)


def test_the_vector_is_a_constant_in_the_score():
    step, context = decided()
    table = E.clone().requires_grad_()
    context = type(context)(**{**vars(context), "embedding": table})
    STRATEGY.log_prob(LOGITS, step, context).sum().backward()
    # d lp / d h = xi / sigma, and h = sum of the weighted rows.
    expected = torch.zeros_like(E)
    sigma = 0.5 * float(E.square().mean().sqrt())
    for row in range(2):
        for token, weight in zip(step.ids[row], step.weights[row], strict=True):
            expected[token] += weight * context.noise(3)[row] / sigma
    torch.testing.assert_close(table.grad, expected)


def test_plain_rows_have_finite_gradients():
    step, context = decided()
    plain = step._replace(mixed=torch.tensor([False, True]), noise=torch.tensor([0.0, 0.5]), ids=step.ids * 0)
    logits = LOGITS.clone().requires_grad_()
    made = STRATEGY.log_prob(logits, plain, context)
    assert float(made[0].detach()) == pytest.approx(float(LOGITS[0].log_softmax(-1)[1]))
    made.sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize(("setting", "value"), [("k", 0), ("tau", 0.0), ("scale", 0.0)])
def test_settings_out_of_range_are_refused(setting: str, value: Any):
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        GaussianTopK(**{setting: value})
