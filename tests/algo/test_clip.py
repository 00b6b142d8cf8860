import json

import pytest
import torch
from places import ROOT

from ngrpo.algo.clip import clipped_surrogate, clipped_weight, unclipped

TABLE = json.loads((ROOT / "tests/vectors.json").read_text())["clip_table"]
BOUNDS = {"ngrpo_0.16_0.24": (0.16, 0.24), "dapo_0.2_0.28": (0.2, 0.28), "sym_0.2": (0.2, 0.2)}


@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", BOUNDS)
def test_golden_values_and_gradients(name: str, sign: int, dual: float | None) -> None:
    low, high = BOUNDS[name]
    log_ratio = torch.tensor(TABLE["inputs"]["ratio"], dtype=torch.float64).log().requires_grad_()
    advantage = torch.full_like(log_ratio, sign).detach()
    surrogate = clipped_surrogate(log_ratio, advantage, low, high, dual)
    (grad,) = torch.autograd.grad(surrogate.loss.sum(), log_ratio)

    expected = TABLE["outputs"][f"{name}_A{sign:+d}"]
    loss_key, grad_key = ("loss", "grad_wrt_logp") if dual is None else ("loss_dualclip3", "grad_dualclip3")
    assert surrogate.loss.tolist() == pytest.approx(expected[loss_key], abs=1e-9)
    assert grad.tolist() == pytest.approx(expected[grad_key], abs=1e-9)
    assert surrogate.clipped.tolist() == [value == 0.0 for value in expected[grad_key]]


def test_at_ratio_one_clipped_equals_unclipped() -> None:
    advantage = torch.tensor([2.0, -1.0, 0.0])
    log_ratio = torch.zeros(3, requires_grad=True)
    surrogate = clipped_surrogate(log_ratio, advantage, 0.2, 0.28, 3.0)
    (grad,) = torch.autograd.grad(surrogate.loss.sum(), log_ratio)
    assert surrogate.loss.tolist() == [-2.0, 1.0, 0.0]
    assert grad.tolist() == [-2.0, 1.0, 0.0]
    assert not surrogate.clipped.any()


def test_zero_advantage_never_moves_the_policy() -> None:
    log_ratio = torch.tensor([-20.0, 0.5, 20.0], requires_grad=True)
    surrogate = clipped_surrogate(log_ratio, torch.zeros(3), 0.2, 0.2, 3.0)
    (grad,) = torch.autograd.grad(surrogate.loss.sum(), log_ratio)
    assert surrogate.loss.tolist() == [0.0, 0.0, 0.0]
    assert grad.tolist() == [0.0, 0.0, 0.0]
    assert not surrogate.clipped.any()


def test_dual_clip_bounds_only_negative_advantages_beyond_its_multiple() -> None:
    log_ratio = torch.tensor([2.9, 3.1, 0.5], dtype=torch.float64).log().requires_grad_()
    advantage = torch.tensor([-2.0, -2.0, 2.0], dtype=torch.float64)
    surrogate = clipped_surrogate(log_ratio, advantage, 0.2, 0.2, 3.0)
    (grad,) = torch.autograd.grad(surrogate.loss.sum(), log_ratio)
    assert surrogate.loss.tolist() == pytest.approx([5.8, 6.0, -1.0])
    assert grad.tolist() == pytest.approx([5.8, 0.0, -1.0])
    assert surrogate.clipped.tolist() == [False, True, False]


CISPO = json.loads((ROOT / "tests/vectors.json").read_text())["cispo"]


@pytest.mark.parametrize("key", CISPO["outputs"])
def test_golden_clipped_weight(key: str) -> None:
    """Token mean over 8 tokens; the value of the vector is -w A lp, of which only the gradient has a meaning."""
    expected = CISPO["outputs"][key]
    new, old = (
        torch.tensor([v for row in CISPO["inputs"][name] for v in row], dtype=torch.float64)
        for name in ("logp_new", "logp_old")
    )
    advantage = torch.tensor([CISPO["inputs"]["A"][0]] * 3 + [CISPO["inputs"]["A"][1]] * 5, dtype=torch.float64)
    leaf = new.clone().requires_grad_()
    surrogate = clipped_weight(leaf - old, advantage, high=float(key.split("=")[1]))
    (grad,) = torch.autograd.grad(surrogate.loss.sum() / 8, leaf)
    assert grad.tolist() == pytest.approx([v for row in expected["grad_wrt_logp"] for v in row], abs=1e-9)
    weights = -8 * grad / advantage
    assert weights.tolist() == pytest.approx([v for row in expected["w"] for v in row], abs=1e-9)
    assert float((-weights * advantage * new).mean()) == pytest.approx(expected["loss"], abs=1e-9)


def test_unclipped_is_the_clipped_surrogate_with_bounds_that_never_bind() -> None:
    log_ratio = torch.randn(50, generator=torch.Generator().manual_seed(0))
    advantage = torch.randn(50, generator=torch.Generator().manual_seed(1))
    wide = clipped_surrogate(log_ratio, advantage, low=1.0, high=1e9)
    assert torch.equal(unclipped(log_ratio, advantage).loss, wide.loss)
    assert not unclipped(log_ratio, advantage).clipped.any()
