"""8-bit moments."""

import pytest
import torch
from torch import nn

from ngrpo.errors import SettingError
from ngrpo.training.optim.optimizers import EightBitAdamW
from ngrpo.utils import optional_packages as extras


def test_a_missing_package_is_named_at_once(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"^trainer/optimizer=adamw_8bit needs torchao.*ngrpo\[torchao\]'\.$"):
        EightBitAdamW()


def test_steps_are_near_those_of_32_bits():
    pytest.importorskip("torchao")
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(64, 128, generator=generator)
    weights = [nn.Parameter(start.clone()) for _ in range(2)]
    settings = {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1}
    optimizers = [EightBitAdamW(**settings)([weights[0]]), torch.optim.AdamW([weights[1]], **settings)]
    for _ in range(5):
        gradient = torch.randn(64, 128, generator=generator) + 1.0
        for weight, optimizer in zip(weights, optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    moved = (weights[1] - start).norm()
    assert (weights[0] - weights[1]).norm() < 0.02 * moved
    (moments,) = optimizers[0].state.values()
    assert moments["exp_avg"].codes.dtype == torch.uint8
