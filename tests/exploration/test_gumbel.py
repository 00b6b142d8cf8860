"""Gumbel soft thinking against the worked examples."""

import json
from typing import Any

import pytest
import torch
from contexts import step_context
from places import ROOT
from torch.nn.functional import embedding

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step
from ngrpo.exploration.gumbel import GumbelSoftThinking, masked_mean, summed

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())
GOLDEN = VECTORS["gumbel_softmax"]["outputs"]
OLD, NEW, U = (
    torch.tensor([VECTORS["gumbel_softmax"]["inputs"][n]], dtype=torch.float64) for n in ("p_old", "p_new", "u")
)
EVERYTHING = {"top_k": 4, "top_p": 1.0}


def recorded(scores: list[float], mixed: bool = True) -> Step:
    """The step whose ids are in the vocabulary's order."""
    ids = torch.arange(len(scores))[None]
    values = torch.tensor([scores], dtype=torch.float64)
    return Step(torch.tensor([1]), torch.tensor([mixed]), ids, values.softmax(-1), scores=values)


@pytest.mark.parametrize("tau_g", [0.1, 0.5, 1.0])
def test_scores_and_weights_are_the_papers(tau_g: float, monkeypatch: pytest.MonkeyPatch):
    """The draws of the example are by token id; the record is sorted by score."""
    strategy, context = GumbelSoftThinking(**EVERYTHING, tau_g=tau_g), step_context(1)
    noise = -torch.log(-torch.log(U))
    assert noise[0].tolist() == pytest.approx(GOLDEN["gumbel_eps"])
    monkeypatch.setattr(
        type(context), "gumbel", lambda self, stream, index: noise.gather(-1, index) if index.shape[-1] == 4 else 0
    )
    step = strategy.step(OLD.log(), context)
    assert step.token.tolist() == [GOLDEN["argmax_token"]]
    order = sorted(range(4), key=lambda i: -GOLDEN["g"][i])
    assert step.ids[0].tolist() == order
    assert step.scores is not None
    assert step.scores[0].tolist() == pytest.approx([GOLDEN["g"][i] for i in order], abs=1e-9)
    assert step.weights[0].tolist() == pytest.approx([GOLDEN[f"y_tau{tau_g}"][i] for i in order], abs=1e-9)


def test_the_papers_density():
    strategy, step = GumbelSoftThinking(**EVERYTHING), recorded(GOLDEN["g"])
    old, new = (float(strategy.log_prob(p.log(), step, step_context(1))) for p in (OLD, NEW))
    assert old == pytest.approx(GOLDEN["logdens_old_sum"], abs=1e-9)
    assert new == pytest.approx(GOLDEN["logdens_new_sum"], abs=1e-9)
    assert torch.tensor(new - old).exp().item() == pytest.approx(GOLDEN["ratio_sum_form (paper)"], abs=1e-6)
    log_probs = NEW.log().requires_grad_()
    summed(torch.tensor([GOLDEN["g"]]), log_probs, torch.ones(1, 4, dtype=torch.bool)).sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad[0].tolist() == pytest.approx(GOLDEN["dlogdens_dlogp_new (=1-exp(-(g-logp)))"], abs=1e-6)


def test_the_released_density():
    strategy, step = GumbelSoftThinking(**EVERYTHING, density="masked_mean"), recorded(GOLDEN["g"])
    old, new = (float(strategy.log_prob(p.log(), step, step_context(1))) for p in (OLD, NEW))
    assert old == pytest.approx(GOLDEN["code_mean_form_old"], abs=1e-4)
    assert new == pytest.approx(GOLDEN["code_mean_form_new"], abs=1e-4)
    assert torch.tensor(new - old).exp().item() == pytest.approx(GOLDEN["code_ratio"], abs=1e-4)


def test_residuals_of_the_released_density_are_clamped():
    example = GOLDEN["clamped_residual_example"]
    log_probs = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    density = masked_mean(torch.tensor([example["residual"]]), log_probs, torch.ones(1, 3, dtype=torch.bool))
    expected = sum(-r - torch.tensor(-r).exp().item() for r in example["clamped"]) / 3
    assert float(density.detach()) == pytest.approx(expected, abs=1e-5)
    density.sum().backward()
    assert log_probs.grad is not None
    assert (3 * log_probs.grad[0]).tolist() == pytest.approx(example["grad_wrt_logp"], abs=1e-5)


def test_rare_ids_are_left_out_of_the_released_mean():
    probs = torch.tensor([[0.97, 0.03]], dtype=torch.float64)  # log 0.03 < -3
    scores = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    residual = 0.5 - torch.log(probs[0, 0] + 1e-6)
    made = masked_mean(scores, probs.log(), torch.ones(1, 2, dtype=torch.bool))
    assert float(made) == pytest.approx(float(-residual - torch.exp(-residual)), abs=1e-9)


@pytest.mark.parametrize("settings", [EVERYTHING, {"top_k": 2, "top_p": 1.0}, {"top_k": 4, "top_p": 0.7}])
def test_the_visible_token_is_a_draw_from_the_kept_set(settings: dict[str, Any]):
    probs = VECTORS["gumbel_max_check"]["inputs"]["p"]
    kept = 4 if settings == EVERYTHING else 2  # .5 + .3 reaches .7
    rows = 40_000
    step = GumbelSoftThinking(**settings).step(torch.tensor(probs).log().repeat(rows, 1), step_context(rows))
    counts = step.token.bincount(minlength=4) / rows
    expected = [p / sum(probs[:kept]) for p in probs[:kept]] + [0.0] * (4 - kept)
    assert counts.tolist() == pytest.approx(expected, abs=4 * (0.25 / rows) ** 0.5)
    assert (
        step.token.tolist()
        == step.ids[:, 0].tolist()
        == step.ids.gather(1, step.weights.argmax(1)[:, None])[:, 0].tolist()
    )


def test_truncated_ids_have_no_score_no_weight_and_no_influence():
    strategy = GumbelSoftThinking(top_k=4, top_p=0.7)
    step = strategy.step(OLD.float().log(), step_context(1))
    assert step.scores is not None
    assert step.scores.isinf().tolist() == [[False, False, True, True]]
    assert step.weights[0, 2:].tolist() == [0.0, 0.0]
    logits = NEW.float().log().requires_grad_()
    density = strategy.log_prob(logits, step, step_context(1))
    two = NEW.float()[0, step.ids[0, :2]]
    residual = step.scores[0, :2] - (two / two.sum()).log()
    assert float(density.detach()) == pytest.approx(float((-residual - torch.exp(-residual)).sum()), abs=1e-5)
    density.sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert not logits.grad[0, step.ids[0, 2:]].any()


def test_plain_rows_are_scored_as_tokens_and_have_finite_gradients():
    strategy, step = GumbelSoftThinking(**EVERYTHING), recorded([0.0] * 4, mixed=False)
    step = step._replace(ids=step.ids * 0)
    logits = torch.randn(1, 9, requires_grad=True)
    made = strategy.log_prob(logits, step, step_context(1))
    assert float(made.detach()) == pytest.approx(float(logits.detach().log_softmax(-1)[0, 1]), abs=1e-6)
    made.sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_the_end_token_is_fed_alone_and_its_scores_stay():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().repeat(200, 1)
    free, ending = (
        GumbelSoftThinking(**EVERYTHING).step(logits, step_context(200, end_ids=ends)) for ends in ((), (0,))
    )
    at_end = ending.token == 0
    assert 50 < int(at_end.sum()) < 150
    assert ending.mixed.all()
    assert torch.equal(free.scores, ending.scores)
    assert torch.equal(ending.weights[at_end], torch.eye(4)[:1].expand(int(at_end.sum()), 4))
    assert torch.equal(ending.weights[~at_end], free.weights[~at_end])
    table = torch.randn(4, 3)
    fed = GumbelSoftThinking().inputs(lambda ids: embedding(ids, table), ending, step_context(200), {})
    torch.testing.assert_close(fed[at_end], table[:1].expand(int(at_end.sum()), 3))


def test_after_the_end_tokens_are_drawn_from_the_whole_softmax():
    rows = 3000
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().repeat(rows, 1)
    context = step_context(rows, ended=[True] * rows)
    step = GumbelSoftThinking(top_k=1).step(logits, context)
    assert not step.mixed.any()
    assert step.token.tolist() == context.sample(logits).tolist()
    assert set(step.token.tolist()) == {0, 1, 2, 3}


def test_gradient_into_the_embedding_is_cut():
    assert GumbelSoftThinking().detached


@pytest.mark.parametrize(
    ("setting", "value"), [("top_k", 0), ("top_p", 0.0), ("top_p", 1.1), ("tau_g", 0.0), ("density", "mean")]
)
def test_settings_out_of_range_are_refused(setting: str, value: Any):
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        GumbelSoftThinking(**{setting: value})


@pytest.mark.parametrize("strategy", [GumbelSoftThinking(top_p=1.0, end_token=None)])
def test_a_top_p_of_one_keeps_every_id(strategy: GumbelSoftThinking):
    """Where one token has all the mass, sums of float32 probabilities reach 1 with the first."""
    logits = torch.tensor([[40.0, 3.0, 2.0, 1.0, 0.0, -1.0], [5.0, 0.0, 0.0, 0.0, 0.0, -60.0]])
    step = strategy.step(logits, step_context(2))
    assert step.scores is not None
    assert bool(step.scores.isfinite().all())
    assert [sorted(ids) for ids in step.ids.tolist()] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
