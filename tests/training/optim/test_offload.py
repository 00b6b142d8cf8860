"""What waits in host memory."""

import pytest
import torch
from torch import nn

from ngrpo.training.optim.offload import move_state, visiting

META = torch.device("meta")


def stepped(**settings) -> torch.optim.Optimizer:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], **settings)
    weight.grad = torch.ones(3)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("fused", [False, True])
def test_moments_move_and_the_count_of_steps_stays(fused: bool):
    optimizer = stepped(fused=fused)
    move_state([optimizer], META)
    (state,) = optimizer.state.values()
    assert {name: value.device.type for name, value in state.items()} == {
        "step": "cpu", "exp_avg": "meta", "exp_avg_sq": "meta",
    }  # fmt: skip


def test_there_and_back_nothing_changes():
    moved, still = stepped(), stepped()
    move_state([moved], torch.device("cpu"))
    for optimizer in (moved, still):
        optimizer.step()
    (one,), (other,) = moved.param_groups[0]["params"], still.param_groups[0]["params"]
    assert torch.equal(one, other)


@pytest.mark.gpu
def test_moments_come_back_from_the_host():
    weight = nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = torch.optim.AdamW([weight], fused=True)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    move_state([optimizer], torch.device("cpu"))
    assert optimizer.state[weight]["exp_avg"].is_pinned()
    move_state([optimizer], weight.device)
    optimizer.step()
    assert float(weight[0]) == pytest.approx(1 - 2e-3, abs=1e-4)


def test_a_model_visits_the_device_and_goes_home(monkeypatch):
    seen, model = [], nn.Linear(2, 2)
    monkeypatch.setattr(model, "to", lambda device: seen.append(str(device)))
    with visiting(model, META):
        assert seen == ["meta"]
    assert seen == ["meta", "cpu"]
