"""Whether weights are gathered once an optimiser step; what it computes, tests/runs/test_invariance.py compares."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ngrpo.modeling.gathering import gathered_bytes, gathers_once

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture
def model() -> nn.Module:
    frozen = nn.Linear(50, 50).requires_grad_(False)
    return nn.Sequential(nn.Linear(100, 10, bias=False), frozen)


@pytest.mark.parametrize(("memory", "itemsize", "chosen"), [(36_000, 2, True), (35_999, 2, False), (36_000, 4, False)])
def test_a_sixth_of_the_memory_may_be_taken(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch, memory: int, itemsize: int, chosen: bool
):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=memory))
    assert gathers_once(None, model, itemsize, GPU) is chosen
    assert gathers_once(True, model, itemsize, GPU) is True
    assert gathers_once(False, model, itemsize, GPU) is False


def test_a_cpu_gathers_for_each_pass_unless_it_is_told_otherwise(model: nn.Module):
    assert gathers_once(None, model, 2, CPU) is False
    assert gathers_once(True, model, 2, CPU) is True


def test_bytes_of_the_qwen2_1_5b_shape():
    assert gathered_bytes(1_780_000_000, torch.bfloat16.itemsize) == 10_680_000_000
