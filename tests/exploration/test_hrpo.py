"""HRPO's gate against the worked example."""

import json

import pytest
import torch
from contexts import step_context
from places import ROOT
from torch import Tensor
from torch.nn.functional import embedding

from ngrpo.errors import SettingError
from ngrpo.exploration.hrpo import HybridReasoning, gate, inverse_decay, mean_over_norm

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["hrpo_gate"]
GIVEN = {name: torch.tensor(value, dtype=torch.float64) for name, value in GOLDEN["inputs"].items()}
OUTPUTS = GOLDEN["outputs"]


def parameters(reset: Tensor, admitted: Tensor) -> dict[str, Tensor]:
    """Parameters whose gates have these values whatever the token."""
    none = torch.zeros(4, 4, dtype=torch.float64)
    return {
        "reset_weight": none,
        "reset_bias": torch.logit(reset),
        "input_weight": none,
        "input_bias": torch.logit(admitted),
        "lambda": inverse_decay(GIVEN["u"]),
    }


def test_lambda_starts_where_the_code_starts_it():
    assert inverse_decay(GIVEN["u"]).tolist() == pytest.approx(OUTPUTS["Lambda"], abs=1e-9)


def test_latent_is_the_mean_over_the_norm_of_p():
    made = mean_over_norm(GIVEN["p"].log()[None].float(), GIVEN["E"])
    assert made[0].tolist() == pytest.approx(OUTPUTS["h_hat=pE/||p||2"], abs=1e-6)


def test_gated_vector_is_the_codes():
    latent = torch.tensor([OUTPUTS["h_hat=pE/||p||2"]], dtype=torch.float64)
    made = gate(GIVEN["e"][None], latent, parameters(GIVEN["r_t"], GIVEN["i_t"]))
    assert made[0].tolist() == pytest.approx(OUTPUTS["mixed"], abs=1e-9)


def test_decay_is_u_to_the_power_of_r():
    """With no latent, x / e is a."""
    ones = torch.ones(1, 4, dtype=torch.float64)
    for reset, name in ((torch.ones(4), "a_at_r1 (equals u)"), (GIVEN["r_t"], "a_t (equals u**r_t)")):
        made = gate(ones, 0 * ones, parameters(reset.double(), GIVEN["i_t"]))
        assert made[0].tolist() == pytest.approx(OUTPUTS[name], abs=1e-9)
    admitted = torch.ones(4, dtype=torch.float64)
    made = gate(0 * ones, ones, parameters(GIVEN["r_t"], admitted))
    assert made[0].tolist() == pytest.approx(OUTPUTS["sqrt_term"], abs=1e-9)


def test_gradient_is_finite_as_the_decay_nears_one():
    given = {name: value.float().requires_grad_() for name, value in parameters(GIVEN["r_t"], GIVEN["i_t"]).items()}
    given["lambda"] = torch.full((4,), 80.0, requires_grad=True)
    gate(torch.ones(1, 4), torch.ones(1, 4), given).sum().backward()
    assert all(bool(value.grad.isfinite().all()) for value in given.values() if value.grad is not None)


def test_initial_parameters_are_pure_and_in_range():
    strategy = HybridReasoning(r_min=0.9, r_max=0.95, init_seed=3)
    made, again = strategy.initial_parameters(64), strategy.initial_parameters(64)
    assert {name: tuple(value.shape) for name, value in made.items()} == {
        "reset_weight": (64, 64), "reset_bias": (64,), "input_weight": (64, 64), "input_bias": (64,), "lambda": (64,),
    }  # fmt: skip
    assert all(torch.equal(value, again[name]) and value.dtype == torch.float32 for name, value in made.items())
    assert not torch.equal(made["lambda"], HybridReasoning(0.9, 0.95).initial_parameters(64)["lambda"])
    start = torch.sigmoid(made["lambda"]) ** 8
    assert 0.9 - 1e-5 < float(start.min()) < 0.91
    assert 0.94 < float(start.max()) < 0.95 + 1e-5
    assert float(made["reset_weight"].abs().max()) <= 1 / 8
    assert strategy.learning_rates() == {name: 1e-3 if name == "lambda" else 1e-4 for name in made}


def test_step_draws_the_token_and_records_the_latent_until_the_end():
    table = torch.randn(5, 3)
    logits = torch.tensor([0.1, 0.2, 0.3, 0.3, 0.1]).log().repeat(50, 1)
    context = step_context(50, embedding=table.bfloat16(), end_ids=(2,), ended=[True] * 10 + [False] * 40)
    step = HybridReasoning().step(logits, context)
    assert step.token.tolist() == context.sample(logits).tolist()
    assert step.mixed.tolist() == [i >= 10 and token != 2 for i, token in enumerate(step.token.tolist())]
    assert step.vector is not None
    assert step.vector.dtype == torch.bfloat16
    torch.testing.assert_close(step.vector, mean_over_norm(logits, table.bfloat16()).bfloat16())


def test_inputs_take_the_current_row_and_keep_the_latent_constant():
    strategy, table = HybridReasoning(), torch.randn(5, 3, requires_grad=True)
    step = strategy.step(torch.zeros(2, 5), step_context(2, embedding=table.detach()))
    learned = {name: value.requires_grad_() for name, value in strategy.initial_parameters(3).items()}
    made = strategy.inputs(lambda ids: embedding(ids, table), step, step_context(2), learned)
    assert step.vector is not None
    torch.testing.assert_close(made, gate(table[step.token], step.vector, learned))
    made.sum().backward()
    assert table.grad is not None
    assert set(table.grad.any(-1).nonzero()[:, 0].tolist()) == set(step.token.tolist())
    assert all(bool(value.grad.any()) for value in learned.values())


def test_the_gate_is_computed_in_float32_under_autocast():
    strategy, table = HybridReasoning(r_min=0.9999, r_max=0.99995), torch.randn(5, 3)
    step = strategy.step(torch.zeros(2, 5), step_context(2, embedding=table))
    learned = strategy.initial_parameters(3)
    exact = strategy.inputs(lambda ids: embedding(ids, table), step, step_context(2), learned)
    with torch.autocast("cpu", torch.bfloat16):
        made = strategy.inputs(lambda ids: embedding(ids, table), step, step_context(2), learned)
    assert torch.equal(made, exact)


@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 0.9), (0.9, 0.8), (0.9, 1.0)])
def test_settings_out_of_range_are_refused(r_min: float, r_max: float):
    with pytest.raises(SettingError, match=rf"^exploration\.r_min={r_min} and exploration\.r_max={r_max} .*\.$"):
        HybridReasoning(r_min=r_min, r_max=r_max)


def test_initial_values_are_the_same_where_tensors_are_made_on_another_device() -> None:
    expected = HybridReasoning(init_seed=3).initial_parameters(8)
    with torch.device("meta"):
        made = HybridReasoning(init_seed=3).initial_parameters(8)
    for name, value in expected.items():
        assert torch.equal(made[name], value)
