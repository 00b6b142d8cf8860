"""Advantages that are too small to learn from are told once; what is excluded, or without any signal, is not."""

import math

import pytest
import torch
from over_ranks import alone

from ngrpo.training.observed_advantages import AdvantageWarnings, largest


def test_the_largest_is_that_of_what_counts() -> None:
    assert largest([]) == 0.0
    assert largest([torch.zeros(1, 0), torch.full((1, 3), math.nan)]) == 0.0
    assert largest([torch.tensor([[0.5, -2.0]]), torch.tensor([[math.nan, 1.0]])]) == 2.0
    assert largest([torch.tensor([[-math.inf, 1.0]])]) == math.inf


@pytest.mark.parametrize(("size", "said"), [(0.0, 0), (1e-30, 1), (-2e-5, 1), (math.nan, 0), (0.01, 0), (1e30, 0)])
def test_only_tiny_ones_are_told(size: float, said: int, caplog: pytest.LogCaptureFixture) -> None:
    warn = AdvantageWarnings()
    for _ in range(2):
        warn([torch.tensor([[0.0, size]])], alone)
    assert len(caplog.messages) == said
