import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ngrpo.algo.kl import k1, k2, k3

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())["kl_estimators"]
INPUTS, OUTPUTS = GOLDEN["inputs"], GOLDEN["outputs"]
Estimator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ALL = {"k1": k1, "k2": k2, "k3": k3}


def double(name: str) -> torch.Tensor:
    return torch.tensor(INPUTS[name], dtype=torch.float64)


@pytest.mark.parametrize("name", ALL)
def test_golden_values(name: str) -> None:
    found = ALL[name](double("logp"), double("logp_ref"))
    assert found.tolist() == pytest.approx(OUTPUTS[name], abs=1e-9)


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_golden_gradients(name: str) -> None:
    log_prob = double("logp").requires_grad_()
    (grad,) = torch.autograd.grad(ALL[name](log_prob, double("logp_ref")).sum(), log_prob)
    assert grad.tolist() == pytest.approx(OUTPUTS[f"d{name}_dlogp"], abs=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_golden_expectations(name: str) -> None:
    policy, reference = double("p"), double("q_ref")
    found = (policy * ALL[name](policy.log(), reference.log())).sum().item()
    assert found == pytest.approx(OUTPUTS[f"E_p[{name}]"], abs=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_golden_expected_gradient_as_a_loss(name: str) -> None:
    logits = double("p").log().requires_grad_()
    log_prob = logits.log_softmax(-1)
    # On policy: the samples' probabilities are constants, only the estimator is differentiated.
    loss = (double("p") * ALL[name](log_prob, double("q_ref").log())).sum()
    (grad,) = torch.autograd.grad(loss, logits)
    assert grad.tolist() == pytest.approx(OUTPUTS[f"E[grad {name} as loss]"], abs=1e-9)


def test_k3_is_clamped_at_both_extremes() -> None:
    log_prob = torch.tensor([25.0, -25.0])
    assert k3(log_prob, torch.zeros(2)).tolist() == [
        OUTPUTS["k3_extreme_logp-ref=+25_with_clamps"],
        OUTPUTS["k3_extreme_logp-ref=-25_with_clamps"],
    ]


def test_k3_is_never_negative_and_accurate_near_zero() -> None:
    difference = torch.logspace(-7, 0, 1000) * torch.tensor([1.0, -1.0]).repeat(500)
    found = k3(torch.zeros(1000), difference)
    exact = difference.double().expm1() - difference.double()
    assert (found >= 0).all()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-8)
