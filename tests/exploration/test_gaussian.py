"""Gaussian soft tokens against the worked example, and their gradient against autograd of the written-out density."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from contexts import step_context
from places import ROOT
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step
from ngrpo.exploration.density import gaussian_log_density, table_rms
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.vocabulary import Vocabulary

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["gaussian_soft_token"]
E = torch.tensor(GOLDEN["inputs"]["E"])
OLD, NEW, XI = (torch.tensor([GOLDEN["inputs"][name]]) for name in ("logits_old", "logits_new", "xi"))
VOCABULARY = Vocabulary(4, frozenset(), {})
TEMPERATURES = [0.5, 1.0, 0.0001]


def tables(strategy: GaussianSoftTokens) -> dict[str, Tensor]:
    return strategy.prepare(E, VOCABULARY)


def fed(vector: list[float]) -> Step:
    """The step that fed ``vector``."""
    none = torch.zeros(1, 0)
    sigma = tables(GaussianSoftTokens())["sigma"]
    return Step(torch.tensor([0]), torch.tensor([True]), none.long(), none, None, torch.tensor([vector]), sigma[None])


def test_sigma_comes_from_the_entries_of_the_table_without_padding():
    assert float(table_rms(E, 4)) == pytest.approx(GOLDEN["outputs"]["rms_per_entry_of_table"])
    assert float(tables(GaussianSoftTokens())["sigma"]) == pytest.approx(GOLDEN["outputs"]["sigma=0.33*rms"])
    padded = torch.cat([E, torch.full((3, 2), 100.0)])
    assert float(GaussianSoftTokens().prepare(padded, VOCABULARY)["sigma"]) == pytest.approx(0.2475)


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_vector_is_the_papers(tau: float, monkeypatch: pytest.MonkeyPatch):
    strategy = GaussianSoftTokens(tau=tau)
    context = step_context(1, tables=tables(strategy), embedding=E)
    monkeypatch.setattr(type(context), "noise", lambda self, width: XI)
    step = strategy.step(OLD, context)
    assert step.vector is not None
    assert step.vector[0].tolist() == pytest.approx(GOLDEN["outputs"][f"T={tau}"]["h_noisy"], abs=1e-6)
    mean = step.vector[0] - 0.2475 * XI[0]
    assert mean.tolist() == pytest.approx(GOLDEN["outputs"][f"T={tau}"]["h_old"], abs=1e-6)
    assert (step.token.tolist(), step.mixed.tolist(), step.ids.shape) == ([0], [True], (1, 0))
    assert step.noise is not None
    assert step.noise.tolist() == pytest.approx([0.2475])


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_density_is_the_papers(tau: float):
    golden, strategy = GOLDEN["outputs"][f"T={tau}"], GaussianSoftTokens(tau=tau)
    context, step = step_context(1, embedding=E), fed(golden["h_noisy"])
    old, new = (float(strategy.log_prob(logits, step, context)) for logits in (OLD, NEW))
    assert old == pytest.approx(golden["logdens_old_no_const"], rel=1e-5)
    assert new == pytest.approx(golden["logdens_new_no_const"], rel=1e-5)
    assert new - old == pytest.approx(golden["log_ratio"], abs=1e-5)
    mean = torch.tensor([golden["h_new"]], requires_grad=True)
    assert step.vector is not None
    assert step.noise is not None
    gaussian_log_density(step.vector, mean, step.noise, step.mixed).sum().backward()
    assert mean.grad is not None
    # At tau = 1e-4 the example's derivative is xi / sigma.
    assert mean.grad[0].tolist() == pytest.approx(golden["dlogdens_dh_new"], rel=1e-4)


def test_gradient_flows_through_logits_and_table_and_not_into_the_vector():
    strategy, step = GaussianSoftTokens(), fed([1.0, -0.2])
    logits, table, vector = NEW.clone().requires_grad_(), E.clone().requires_grad_(), step.vector.requires_grad_()
    context = replace(step_context(1), embedding=table)
    made = torch.autograd.grad(
        strategy.log_prob(logits, step, context).sum(), [logits, table, vector], allow_unused=True
    )
    probs = (logits / 0.5).exp() / (logits / 0.5).exp().sum()
    written_out = -((vector.detach() - probs @ table) ** 2).sum() / (2 * 0.2475**2)
    expected = torch.autograd.grad(written_out, [logits, table])
    torch.testing.assert_close(made[:2], expected)
    assert made[2] is None


def test_plain_rows_are_scored_as_tokens_and_have_finite_gradients():
    strategy, step = GaussianSoftTokens(), fed([1.0, -0.2])
    assert step.vector is not None
    assert step.noise is not None
    plain = step._replace(mixed=~step.mixed, vector=0 * step.vector, noise=0 * step.noise)
    logits = NEW.clone().requires_grad_()
    made = strategy.log_prob(logits, plain, step_context(1, embedding=E))
    assert made.tolist() == pytest.approx(logits.log_softmax(-1)[:, 0].tolist())
    made.sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_a_shadow_that_ends_the_reasoning_is_an_ordinary_draw():
    strategy, rows = GaussianSoftTokens(), 400
    context = step_context(rows, tables=tables(strategy), embedding=E, end_ids=(0,))
    step = strategy.step(OLD.repeat(rows, 1), context)
    assert not step.mixed.any()
    assert step.token.tolist() == context.sample(OLD.repeat(rows, 1)).tolist()
    assert set(step.token.tolist()) == {0, 1, 2, 3}
    ended = step_context(2, ended=[True, False], tables=tables(strategy), embedding=E)
    assert strategy.step(OLD.repeat(2, 1), ended).mixed.tolist() == [False, True]


def test_the_vector_has_the_tables_dtype_and_the_density_is_of_the_rounded_one():
    strategy = GaussianSoftTokens()
    context = step_context(3, tables=tables(strategy), embedding=E.bfloat16())
    step = strategy.step(OLD.repeat(3, 1), context)
    assert step.vector is not None
    assert step.vector.dtype == torch.bfloat16
    mean = (OLD / 0.5).softmax(-1) @ E
    expected = -((step.vector.float() - mean) ** 2).sum(-1) / (2 * 0.2475**2)
    torch.testing.assert_close(strategy.log_prob(OLD.repeat(3, 1), step, context), expected)


@pytest.mark.parametrize(("setting", "value"), [("tau", 0.0), ("scale", -1.0), ("scale", float("nan"))])
def test_settings_out_of_range_are_refused(setting: str, value: Any):
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        GaussianSoftTokens(**{setting: value})
