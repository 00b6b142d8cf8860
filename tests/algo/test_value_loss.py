"""The clipped value loss, case by case and against finite differences."""

import json

import pytest
import torch
from places import ROOT

from ngrpo.algo.value_loss import value_loss

# value, old value, return, clip -> loss, clipped
CASES = [
    (0.5, 0.5, 1.0, 0.2, 0.125, False),
    (0.9, 0.5, 1.0, 0.2, 0.5 * 0.3**2, True),  # came nearer than the range allows: judged by its edge, 0.7
    (0.1, 0.5, 1.0, 0.2, 0.5 * 0.9**2, False),  # went away: judged as it is
    (0.6, 0.5, 1.0, 0.2, 0.5 * 0.4**2, False),
    (0.9, 0.5, 1.0, None, 0.5 * 0.1**2, False),
]

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["gae"]["outputs"]["value_loss_clip"]
CASES.append((*(GOLDEN[name] for name in ("vpred", "vold", "ret", "clip", "loss")), False))


@pytest.mark.parametrize(("value", "old", "ret", "clip", "loss", "clipped"), CASES)
def test_by_case(value: float, old: float, ret: float, clip: float | None, loss: float, clipped: bool):
    found = value_loss(*(torch.tensor([x], dtype=torch.float64) for x in (value, old, ret)), clip)
    assert float(found.loss) == pytest.approx(loss)
    assert bool(found.clipped) == clipped


@pytest.mark.parametrize("clip", [0.2, None])
def test_gradient(clip: float | None):
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 200, generator=generator, dtype=torch.float64)
    values.requires_grad_()
    value_loss(values, old, returns, clip).loss.sum().backward()
    step = 1e-6
    with torch.no_grad():
        above, below = (value_loss(values + s, old, returns, clip).loss for s in (step, -step))
    torch.testing.assert_close(values.grad, (above - below) / (2 * step), atol=1e-6, rtol=1e-6)
    still = (values.detach() - old).abs() > 0.2 if clip else torch.zeros(200, dtype=torch.bool)
    assert bool((values.grad[value_loss(values, old, returns, clip).clipped & still] == 0).all())


def test_rounding_clips_nothing():
    """Inside the range, where old + (value - old) is not always the value."""
    generator = torch.Generator().manual_seed(0)
    old, values, returns = (0.02 * torch.randn(10_000, generator=generator) for _ in range(3))
    assert bool((old + (values - old) != values).any())
    assert not bool(value_loss(values, old, returns, 0.2).clipped.any())
