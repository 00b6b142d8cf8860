import json
from collections.abc import Callable

import pytest
import torch
from places import ROOT

from ngrpo.algo.kl import k1, k2, k3, weighted_k3

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["kl_estimators"]
INPUTS, OUTPUTS = GOLDEN["inputs"], GOLDEN["outputs"]
Estimator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
ALL: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3}


def double(name: str) -> torch.Tensor:
    return torch.tensor(INPUTS[name], dtype=torch.float64)


@pytest.mark.parametrize("name", ALL)
def test_golden_values(name: str) -> None:
    found = ALL[name](double("logp"), double("logp_ref"), double("logp"))
    assert found.tolist() == pytest.approx(OUTPUTS[name], abs=1e-9)


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_golden_gradients(name: str) -> None:
    log_prob = double("logp").requires_grad_()
    (grad,) = torch.autograd.grad(ALL[name](log_prob, double("logp_ref"), double("logp")).sum(), log_prob)
    assert grad.tolist() == pytest.approx(OUTPUTS[f"d{name}_dlogp"], abs=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_golden_expectations(name: str) -> None:
    policy, reference = double("p"), double("q_ref")
    found = (policy * ALL[name](policy.log(), reference.log(), policy.log())).sum().item()
    assert found == pytest.approx(OUTPUTS[f"E_p[{name}]"], abs=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_golden_expected_gradient_as_a_loss(name: str) -> None:
    logits = double("p").log().requires_grad_()
    log_prob = logits.log_softmax(-1)
    # On policy: the samples' probabilities are constants, only the estimator is differentiated.
    loss = (double("p") * ALL[name](log_prob, double("q_ref").log(), log_prob.detach())).sum()
    (grad,) = torch.autograd.grad(loss, logits)
    assert grad.tolist() == pytest.approx(OUTPUTS[f"E[grad {name} as loss]"], abs=1e-9)


def test_k3_is_clamped_at_both_extremes() -> None:
    log_prob = torch.tensor([25.0, -25.0])
    assert k3(log_prob, torch.zeros(2), log_prob).tolist() == [
        OUTPUTS["k3_extreme_logp-ref=+25_with_clamps"],
        OUTPUTS["k3_extreme_logp-ref=-25_with_clamps"],
    ]


def test_k3_is_never_negative_and_accurate_near_zero() -> None:
    difference = torch.logspace(-7, 0, 1000) * torch.tensor([1.0, -1.0]).repeat(500)
    found = k3(torch.zeros(1000), difference, torch.zeros(1000))
    exact = difference.double().expm1() - difference.double()
    assert (found >= 0).all()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-8)


# Far apart, so that the closed forms are many standard errors from each other.
POLICY = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
REFERENCE = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
OFF_POLICY = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
LOG_QUOTIENT = (POLICY / REFERENCE).log()
REVERSE = POLICY * (LOG_QUOTIENT - POLICY @ LOG_QUOTIENT)
"""Gradient of KL(policy || reference) by the policy's logits."""
FORWARD = POLICY - REFERENCE
"""Gradient of KL(reference || policy) by the policy's logits."""
SAMPLES = 40_000


@pytest.mark.parametrize(
    ("function", "sampler", "expected"),
    [
        (k1, POLICY, torch.zeros(3)),
        (k2, POLICY, REVERSE),
        (k3, POLICY, FORWARD),
        (weighted_k3, POLICY, REVERSE),
        (weighted_k3, OFF_POLICY, REVERSE),
    ],
    ids=["k1", "k2", "k3", "weighted_k3", "weighted_k3 off policy"],
)
def test_sampled_gradient_is_the_closed_form(
    function: Estimator, sampler: torch.Tensor, expected: torch.Tensor
) -> None:
    """Each component within 4 standard errors of its form, and the whole more than 20 from the other forms."""
    mean, error = sampled_gradient(function, sampler)
    assert ((mean - expected).abs() < 4 * error).all()
    for other in (torch.zeros(3), REVERSE, FORWARD):
        if other is not expected and other.abs().sum() + expected.abs().sum() > 0:
            assert ((mean - other).abs() / error).max() > 20


def test_off_policy_only_the_weighted_estimator_follows_the_divergence() -> None:
    for function in (k2, k3):
        mean, error = sampled_gradient(function, OFF_POLICY)
        assert ((mean - REVERSE).abs() / error).max() > 20


def test_the_weighted_estimator_values_the_divergence_off_policy() -> None:
    value = (OFF_POLICY * weighted_k3(POLICY.log(), REFERENCE.log(), OFF_POLICY.log())).sum()
    assert value.item() == pytest.approx(float(POLICY @ LOG_QUOTIENT))


def sampled_gradient(function: Estimator, sampler: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over sampled tokens of d k(token) / d logits, and its standard error; [3] each."""
    tokens = sampler.multinomial(SAMPLES, replacement=True, generator=torch.Generator().manual_seed(5))
    grads = torch.stack([gradient_of_one(function, sampler, token) for token in range(3)])[tokens]
    return grads.mean(0), grads.std(0) / SAMPLES**0.5


def gradient_of_one(function: Estimator, sampler: torch.Tensor, token: int) -> torch.Tensor:
    logits = POLICY.log().requires_grad_()
    log_prob = logits.log_softmax(-1)[token]
    loss = function(log_prob, REFERENCE.log()[token], sampler.log()[token])
    return torch.autograd.grad(loss, logits)[0]
