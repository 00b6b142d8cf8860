"""The loss scale follows torch's rule, and tells what it is to blame for from what is bad without it."""

import math

import pytest
import torch
from torch import Tensor, nn

from ngrpo.training.optim.loss_scale import GROWTH_INTERVAL, DynamicScale, LossScale, loss_scale

FINITE, INFINITE = torch.tensor(0.5), torch.tensor(math.inf)
LOSS = torch.tensor(-0.25)
OVERFLOWS = [False, False, True, False, True, True, False, False, False, False, False, False, True, False]


def test_scale_and_skipped_steps_are_those_of_torchs_scaler():
    """The reference looks at each gradient; ours at the norm of all."""
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    ours, twins = DynamicScale("policy", 2.0**10, growth_interval=3), [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer, other = torch.optim.SGD(weights, lr=0.1), torch.optim.SGD(twins, lr=0.1)
    for overflow in OVERFLOWS:
        factor = math.inf if overflow else 3.0
        theirs.scale((weights[0] * factor + weights[1]).sum()).backward()
        theirs.step(optimizer)
        theirs.update()
        ours.scaled(Tensor.backward)((twins[0] * factor + twins[1]).sum())
        ours.unscale(twins)
        norm = nn.utils.get_total_norm([twin.grad for twin in twins if twin.grad is not None])
        if not ours.overflowed(LOSS, norm):
            other.step()
        assert ours.value == theirs.get_scale()
        assert all(torch.equal(weight, twin) for weight, twin in zip(weights, twins, strict=True))
        optimizer.zero_grad()
        other.zero_grad()
    assert ours.metrics() == {"policy/loss_scale": ours.value, "policy/overflowed_steps": 4.0}
    ours.begin()
    assert ours.metrics() == {"policy/loss_scale": ours.value, "policy/overflowed_steps": 0.0}


@pytest.mark.parametrize(("value", "loss", "norm"), [(1.0, LOSS, INFINITE), (8.0, INFINITE, INFINITE * math.nan)])
def test_a_bad_step_is_none_of_the_scales(value: float, loss: Tensor, norm: Tensor):
    scale = DynamicScale("critic", value)
    assert not scale.overflowed(loss, norm)
    assert scale.metrics() == {"critic/loss_scale": value, "critic/overflowed_steps": 0.0}


def test_it_goes_on_where_it_was():
    straight, before, after = (DynamicScale("policy", 2.0**4, growth_interval=3) for _ in range(3))
    for number, overflow in enumerate(OVERFLOWS):
        if number == 7:
            after.load_state_dict(before.state_dict())
        for scale in (straight, before if number < 7 else after):
            scale.overflowed(LOSS, INFINITE if overflow else FINITE)
    assert straight.state_dict() == after.state_dict() != before.state_dict()


def test_it_stays_finite():
    scale = DynamicScale("policy", 2.0**127, growth_interval=1)
    assert not scale.overflowed(LOSS, FINITE)
    assert scale.value == 2.0**127


def test_only_float16_is_scaled():
    assert type(loss_scale("policy", torch.float32)) is type(loss_scale("critic", torch.bfloat16)) is LossScale
    assert isinstance(loss_scale("policy", torch.float16), DynamicScale)
    none, weight = LossScale(), nn.Parameter(torch.ones(2))
    none.scaled(Tensor.backward)(weight.sum())
    none.unscale([weight])
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 1]
    assert not none.overflowed(LOSS, INFINITE)
    assert none.metrics() == none.state_dict() == {}


def test_a_run_of_a_few_hundred_steps_may_grow():
    scale = DynamicScale("policy", 2.0)
    for _ in range(GROWTH_INTERVAL):
        scale.overflowed(LOSS, FINITE)
    assert scale.value == 4.0
