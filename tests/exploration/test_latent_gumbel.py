"""Latent-GRPO's strategy against its worked example, its ends and its slopes."""

import json
from typing import Any

import pytest
import torch
from contexts import step_context
from places import ROOT
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step
from ngrpo.exploration.density import gumbel_log_density
from ngrpo.exploration.latent_gumbel import LatentGumbel, bounded_density
from ngrpo.exploration.vocabulary import Vocabulary

VECTOR = json.loads((ROOT / "tests/vectors2.json").read_text())["latent_grpo"]
GIVEN, EXPECTED = VECTOR["inputs"], VECTOR["outputs"]
OLD, NEW = (torch.tensor([GIVEN[name]], dtype=torch.float64) for name in ("z_old", "z_new"))
SMALL = {"top_k": GIVEN["K"], "top_p": 1.0, "tau_g": GIVEN["tau_g"]}
LOGITS = torch.randn(500, 12, generator=torch.Generator().manual_seed(0))


def example(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Step:
    """The step of the worked example, with its draws by token id."""
    draws = -torch.log(-torch.log(torch.tensor([GIVEN["u"]], dtype=torch.float64)))
    context = step_context(1)
    monkeypatch.setattr(type(context), "gumbel", lambda self, stream, index: draws)
    return LatentGumbel(**SMALL | settings).step(OLD, context)


@pytest.mark.parametrize("name", ["two_sided", "one_sided"])
def test_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, strategy = EXPECTED[name], LatentGumbel(**SMALL, one_sided=name == "one_sided")
    step = example(monkeypatch, one_sided=strategy.one_sided)
    assert step.token.tolist() == [expected["token"]]
    assert step.ids.tolist() == [expected["ids"]]
    assert step.scores is not None
    assert step.scores[0].tolist() == pytest.approx(expected["g"], abs=1e-9)
    assert step.weights[0].tolist() == pytest.approx(expected["y"], abs=1e-9)
    old, new = (strategy.log_prob(logits, step, step_context(1)) for logits in (OLD, NEW))
    assert float(old) == pytest.approx(expected["lp_old"], abs=1e-9)
    assert float(new) == pytest.approx(expected["lp_new"], abs=1e-9)
    assert float((new - old).exp()) == pytest.approx(expected["ratio"], abs=1e-9)
    residual = (step.scores - NEW.log_softmax(-1).gather(-1, step.ids)).requires_grad_()
    assert residual[0].tolist() == pytest.approx(expected["residual_new"], abs=1e-9)
    gumbel_log_density(residual).mean(-1).sum().backward()
    assert residual.grad is not None
    assert (-residual.grad[0]).tolist() == pytest.approx(expected["d lp / d logp_new"], abs=1e-9)


def test_golden_slopes_where_a_density_is_pushed_down() -> None:
    (key,) = (name for name in EXPECTED if name.startswith("straight-through"))
    residuals, slopes, replaced = torch.tensor(EXPECTED[key], dtype=torch.float64).T
    for gradient, expected in ((1.0, replaced), (-1.0, slopes)):
        given = residuals.clone().requires_grad_()
        made = bounded_density(given)
        torch.testing.assert_close(made, gumbel_log_density(residuals))
        (found,) = torch.autograd.grad(made, given, torch.full_like(given, gradient))
        torch.testing.assert_close(-gradient * found, expected, rtol=0, atol=1e-9)


def test_the_sign_of_a_gradient_is_that_of_the_advantage_whatever_weighs_it() -> None:
    """Through log_prob: a token with A < 0 and one with A > 0, of the same residuals below 0."""
    strategy = LatentGumbel(top_k=2, top_p=1.0)
    logits = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    ids, scores = torch.tensor([[0, 1]] * 2), torch.full((2, 2), -3.0, dtype=torch.float64)
    step = Step(ids[:, 0], torch.tensor([True, True]), ids, scores.softmax(-1), scores=scores)
    made = strategy.log_prob(logits, step, step_context(2))
    advantages = torch.tensor([-0.5, 2.0], dtype=torch.float64)
    (grad,) = torch.autograd.grad((-advantages * made).sum(), logits)
    d = scores[0, 0] - logits.detach().log_softmax(-1)[0, 0]
    slope = {-0.5: d.exp() - 1, 2.0: 1 - (-d).exp()}
    for row, a in enumerate(advantages.tolist()):
        expected = -a * slope[a] * (torch.tensor([0.5, 0.5, 0.0, 0.0]) - 0.25)
        torch.testing.assert_close(grad[row], expected.double())


def test_moving_the_noise_changes_nothing_but_the_scores() -> None:
    one, two = (LatentGumbel(top_k=4, one_sided=side).step(LOGITS, step_context(500)) for side in (True, False))
    assert torch.equal(one.token, two.token)
    assert torch.equal(one.ids, two.ids)
    torch.testing.assert_close(one.weights, two.weights)
    assert one.scores is not None
    assert two.scores is not None
    torch.testing.assert_close(one.scores - two.scores, torch.full_like(one.scores, 1.5))
    residual = one.scores - LOGITS.log_softmax(-1).gather(-1, one.ids)
    assert -1e-5 < residual.min() < 0.2
    assert residual.max() <= 4.5 + 1e-5


def test_the_set_is_the_top_p_and_at_least_the_top_k() -> None:
    sharp = torch.tensor([[9.0, 1.0, 0.5, 0.0, -1.0, -2.0]]).repeat(400, 1)
    narrow = LatentGumbel(top_k=3, top_p=0.9).step(sharp, step_context(400))
    assert set(narrow.ids.flatten().tolist()) == {0, 1, 2}
    assert bool(narrow.weights.isfinite().all())
    flat = torch.zeros(400, 6)
    wide = LatentGumbel(top_k=3, top_p=0.9).step(flat, step_context(400))
    assert set(wide.ids.flatten().tolist()) == set(range(6))
    assert torch.equal(wide.token, wide.ids[:, 0])


def test_latent_steps_end_where_the_end_token_is_the_most_likely() -> None:
    context = step_context(500, end_ids=(3,))
    step = LatentGumbel(top_k=4).step(LOGITS, context)
    ending = LOGITS.argmax(-1) == 3
    assert 10 < int(ending.sum()) < 490
    assert torch.equal(step.mixed, ~ending)
    assert bool((step.token[ending] == 3).all())
    first, second = step.ids[:, 0], step.ids[:, 1]
    expected = torch.where(first == 3, second, first).where(~ending, 3)
    assert torch.equal(step.token, expected)
    assert bool(((first == 3) & ~ending).any())
    alone = LatentGumbel(top_k=1).step(LOGITS, context)  # K may be the end token and nothing else
    expected = torch.where((alone.ids[:, 0] == 3) | ending, LOGITS.argmax(-1), alone.ids[:, 0])
    assert torch.equal(alone.token, expected)
    scored = LatentGumbel(top_k=4).log_prob(LOGITS, step, context)
    torch.testing.assert_close(scored[ending], LOGITS.log_softmax(-1)[ending, 3])
    ended = step_context(500, ended=[True] * 500, end_ids=(3,))
    after = LatentGumbel(top_k=4).step(LOGITS, ended)
    assert not after.mixed.any()
    assert torch.equal(after.token, ended.sample(LOGITS))


@pytest.mark.parametrize("moved", [0.0, 80.0, -80.0])
def test_far_off_policy_gradients_are_finite(moved: float) -> None:
    strategy = LatentGumbel(top_k=4)
    step = strategy.step(LOGITS, step_context(500))
    logits = LOGITS.clone()
    logits.scatter_add_(-1, step.ids[:, :1], torch.full((500, 1), moved))
    logits.requires_grad_()
    for sign in (1.0, -1.0):
        made = strategy.log_prob(logits, step, step_context(500))
        (grad,) = torch.autograd.grad((sign * made).sum(), logits)
        assert bool(made.isfinite().all())
        assert bool(grad.isfinite().all())


@pytest.mark.parametrize("bounded", [True, False])
def test_plain_rows_are_scored_as_tokens_with_finite_gradients(bounded: bool) -> None:
    scores = torch.full((1, 4), -torch.inf)
    step = Step(torch.tensor([1]), torch.tensor([False]), torch.zeros(1, 4).long(), scores.exp(), scores=scores)
    logits = torch.randn(1, 9, requires_grad=True)
    made = LatentGumbel(top_k=4, bounded=bounded).log_prob(logits, step, step_context(1))
    assert float(made.detach()) == pytest.approx(float(logits.detach().log_softmax(-1)[0, 1]), abs=1e-6)
    made.sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize(
    ("setting", "value"), [("top_k", 0), ("top_p", 0.0), ("top_p", 1.1), ("tau_g", 0.0), ("noise", -1.0)]
)
def test_settings_out_of_range_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        LatentGumbel(**{setting: value})


def test_a_mixture_larger_than_the_vocabulary_is_refused(tiny_vocabulary: Vocabulary) -> None:
    table: Tensor = torch.randn(8, 4)
    with pytest.raises(SettingError, match=r"^exploration\.top_k=10 exceeds the 8 ids of the vocabulary; lower it\.$"):
        LatentGumbel(end_token=None).prepare(table, tiny_vocabulary)
