"""The share of parameters that a step changes, and the warning that it will be small."""

import logging

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from ngrpo.training.rounding import ChangedShare, movable_share, warn_of_rounding


def alone(value: torch.Tensor, op: str) -> torch.Tensor:
    return value


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(300, 64), (64,), (7,), (0, 3)]
    return [nn.Parameter((torch.randn(shape, generator=generator) * 0.02).to(dtype)) for shape in shapes]


def exact(before: list[torch.Tensor], after: list[nn.Parameter]) -> float:
    changed = sum(int((a != b).sum()) for a, b in zip(after, before, strict=True))
    return changed / sum(b.numel() for b in before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rate", [1e-6, 3e-5, 1e-2])
def test_the_sampled_share_is_near_that_of_all_numbers(dtype: torch.dtype, rate: float):
    tensors = parameters(dtype)
    before = [tensor.detach().clone() for tensor in tensors]
    watch = ChangedShare(tensors)
    with torch.no_grad():
        for tensor in tensors:
            tensor += rate
    share = float(watch.after(alone))
    assert share == pytest.approx(exact(before, tensors), abs=0.03)
    optimizer = torch.optim.Adam(before, lr=rate)
    LambdaLR(optimizer, lambda step: 0.0)  # a warmup: the full rate counts
    assert movable_share(optimizer) == pytest.approx(share, abs=0.03)


def test_one_column_of_a_matrix_is_seen():
    tensor = nn.Parameter(torch.zeros(4096, 64))
    watch = ChangedShare([tensor])
    with torch.no_grad():
        tensor[:, 5] = 1.0
    assert float(watch.after(alone)) == pytest.approx(1 / 64, rel=0.1)


def test_shares_of_ranks_are_weighed_by_their_numbers():
    tensor = nn.Parameter(torch.zeros(10))
    watch = ChangedShare([tensor])
    with torch.no_grad():
        tensor += 1.0
    other = torch.tensor([0.0, 30.0], dtype=torch.float64)
    assert float(watch.after(lambda value, op: value + other)) == pytest.approx(0.25)


def test_nothing_changed_is_nothing():
    assert float(ChangedShare(parameters(torch.float32)).after(alone)) == 0.0


@pytest.mark.parametrize(("dtype", "rate", "warned"), [
    (torch.bfloat16, 1e-6, True), (torch.bfloat16, 1e-2, False), (torch.float32, 1e-6, False),
    (torch.bfloat16, 0.0, False),
])  # fmt: skip
def test_a_rate_that_is_rounded_away_is_told(
    dtype: torch.dtype, rate: float, warned: bool, caplog: pytest.LogCaptureFixture
):
    optimizer = torch.optim.Adam(parameters(dtype), lr=rate)
    LambdaLR(optimizer, lambda step: 1.0)
    with caplog.at_level(logging.WARNING):
        warn_of_rounding(optimizer, "bfloat16")
    assert bool(caplog.records) == warned
    assert not warned or "trainer.optimizer.lr=1e-06" in caplog.text
