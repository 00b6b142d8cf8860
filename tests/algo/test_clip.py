import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from places import ROOT
from torch import Tensor

from ngrpo.algo.clip import (
    Surrogate,
    clipped_surrogate,
    clipped_weight,
    dppo_kl,
    dppo_tv,
    dppo_tv_squared,
    sapo,
    unclipped,
)

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


NEWER = json.loads((ROOT / "tests/vectors2.json").read_text())


def packed(rows: list[list[Any]]) -> Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)


def two_sequences(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, which take gradients, those before and advantages of 3 + 5 tokens."""
    inputs = NEWER[name]["inputs"]
    advantage = torch.tensor(inputs["A"], dtype=torch.float64).repeat_interleave(torch.tensor(inputs["lengths"]))
    return packed(inputs["logp_new"]).requires_grad_(), packed(inputs["logp_old"]), advantage


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_golden_dual_clip(sign: float) -> None:
    vector = NEWER["dual_clip"]
    expected = vector["outputs"][f"A={sign:+g}"]
    log_ratio = torch.tensor(vector["inputs"]["ratio"], dtype=torch.float64).log().requires_grad_()
    surrogate = clipped_surrogate(log_ratio, torch.full_like(log_ratio, sign).detach(), 0.2, 0.2, 3.0)
    assert surrogate.loss.tolist() == pytest.approx(expected["loss"], abs=1e-9)
    (grad,) = torch.autograd.grad(surrogate.loss.sum(), log_ratio)
    off_the_kink = [i for i, ratio in enumerate(vector["inputs"]["ratio"]) if ratio != 3.0]
    assert grad[off_the_kink].tolist() == pytest.approx([expected["slope"][i] for i in off_the_kink], abs=1e-9)


def test_golden_sapo() -> None:
    log_prob, old, advantage = two_sequences("sapo")
    outputs = NEWER["sapo"]["outputs"]
    surrogate = sapo(log_prob - old, advantage)
    assert surrogate.loss.tolist() == pytest.approx(packed(outputs["token_loss"]).tolist(), abs=1e-9)
    loss = torch.stack([part.mean() for part in surrogate.loss.split([3, 5])]).mean()
    assert loss.item() == pytest.approx(outputs["loss"], abs=1e-9)
    (grad,) = torch.autograd.grad(loss, log_prob)
    assert grad.tolist() == pytest.approx(packed(outputs["grad"]).tolist(), abs=1e-9)
    assert set(sapo(log_prob - old, 0 * advantage).loss.tolist()) == {outputs["A = 0"]}
    assert not surrogate.clipped.any()


@pytest.mark.parametrize("column", [1, 2])
def test_golden_gate_of_sapo(column: int) -> None:
    table = torch.tensor(NEWER["sapo"]["outputs"]["gate table: r, weight A>0, weight A<0"], dtype=torch.float64)
    log_ratio = table[:, 0].log().requires_grad_()
    advantage = torch.full_like(log_ratio, 3.0 - 2 * column).detach()
    (grad,) = torch.autograd.grad(sapo(log_ratio, advantage).loss.sum(), log_ratio)
    weights = -grad / (advantage * log_ratio.detach().exp())
    assert weights.tolist() == pytest.approx(table[:, column].tolist(), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "clip"),
    [("tv_0.05", partial(dppo_tv, low=0.05, high=0.05)), ("kl_0.005", partial(dppo_kl, low=0.005, high=0.005))],
)
def test_golden_dppo(name: str, clip: Callable[..., Surrogate]) -> None:
    log_prob, old, advantage = two_sequences("dppo")
    expected = NEWER["dppo"]["outputs"][name]
    surrogate = clip(log_prob - old, advantage, log_prob.detach())
    assert (~surrogate.clipped).tolist() == [kept for row in expected["kept"] for kept in row]
    (grad,) = torch.autograd.grad(surrogate.loss.sum() / 8, log_prob)
    assert grad.tolist() == pytest.approx(packed(expected["grad"]).tolist(), abs=1e-9)


def test_golden_dppo_of_prime_rl() -> None:
    log_prob, old, advantage = two_sequences("dppo")
    (key,) = (name for name in NEWER["dppo"]["outputs"] if name.startswith("prime-rl variant"))
    surrogate = dppo_tv_squared(log_prob - old, advantage, log_prob.detach(), 0.05, 0.05, 1e-3)
    assert surrogate.penalty is not None
    (grad,) = torch.autograd.grad((surrogate.loss + surrogate.penalty).sum() / 8, log_prob)
    assert grad.tolist() == pytest.approx(packed(NEWER["dppo"]["outputs"][key]).tolist(), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("clip", "first"), [(dppo_tv, 3), (dppo_kl, 5)])
def test_golden_table_of_dppo(clip: Callable[..., Surrogate], first: int, dtype: torch.dtype) -> None:
    outputs = NEWER["dppo"]["outputs"]
    (key,) = (name for name in outputs if name.startswith("table:"))
    table = torch.tensor(outputs[key], dtype=torch.float64)
    old, new = table[:, 0].log().to(dtype), table[:, 1].log().to(dtype)
    for column, sign in ((first, 1.0), (first + 1, -1.0)):
        clipped = clip(new - old, torch.full_like(old, sign), new).clipped
        assert (~clipped).tolist() == (table[:, column] > 0).tolist()


@pytest.mark.parametrize("clip", [dppo_tv, dppo_kl])
def test_dppo_bounds_the_weight_and_stands_certain_tokens(clip: Callable[..., Surrogate]) -> None:
    log_prob = torch.tensor([0.0, 0.0, -1e-9, -25.0, -3.0, -12.0], requires_grad=True)
    old = torch.tensor([0.0, -1e-9, 0.0, -0.1, -8.0, -12.0])
    for sign in (1.0, -1.0):
        surrogate = clip((log_prob - old).clamp(-20, 20), torch.full((6,), sign), log_prob.detach())
        assert surrogate.loss.isfinite().all()
        (grad,) = torch.autograd.grad(surrogate.loss.sum(), log_prob)
        assert grad.isfinite().all()
    assert abs(float(grad[4])) == 20.0  # of a ratio of 148


CLIPS = {
    "sapo": sapo,
    "dppo_tv": partial(dppo_tv, low=0.02, high=0.02),
    "dppo_kl": partial(dppo_kl, low=0.005, high=0.005),
}


@pytest.mark.parametrize("name", CLIPS)
def test_the_gradients_of_newer_clips_by_differences_and_at_ratio_one(name: str) -> None:
    """Of DPPO only the gradient has a meaning: that of the plain surrogate, where it is kept."""
    log_ratio = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64).requires_grad_()
    log_prob = torch.full((9,), -1.5, dtype=torch.float64)
    for sign in (1.0, -0.7):
        advantage = torch.full((9,), sign, dtype=torch.float64)

        def loss(values: Tensor, advantage: Tensor = advantage) -> Surrogate:
            further = () if name == "sapo" else (log_prob,)
            return CLIPS[name](values, advantage, *further)  # type: ignore[operator,no-any-return]

        (grad,) = torch.autograd.grad(loss(log_ratio).loss.sum(), log_ratio)
        assert grad[4].item() == pytest.approx(-sign)
        step, values = 1e-6, log_ratio.detach()
        if name == "sapo":
            expected = (loss(values + step).loss - loss(values - step).loss) / (2 * step)
        else:
            expected = -advantage * values.exp() * ~loss(values).clipped
            assert loss(values).clipped.any()
        torch.testing.assert_close(grad, expected, rtol=1e-6, atol=1e-8)
        doubled = CLIPS[name](values, 2 * advantage, *(() if name == "sapo" else (log_prob,)))  # type: ignore[operator]
        torch.testing.assert_close(doubled.loss, 2 * loss(values).loss)
