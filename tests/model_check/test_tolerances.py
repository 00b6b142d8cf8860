"""Whether mixtures were left out is told where what they change is less than rounding."""

import math

import pytest
import torch

from ngrpo.model_check.tolerances import deviation, nearer_without, rounding


def scores(seed: int, tokens: int, effect: float, noise: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    own, moved, rounded = (torch.randn(tokens, generator=generator) for _ in range(3))
    return own, own + effect * moved, noise * rounded


@pytest.mark.parametrize("seed", range(20))
def test_left_out_mixtures_are_told_below_the_rounding(seed: int) -> None:
    own, without, noise = scores(seed, 192, 0.15, 0.1)
    assert nearer_without(own, without, without + noise)
    assert not nearer_without(own, without, own + noise)


@pytest.mark.parametrize("effect", [0.0, 1e-6, 1e-3, 0.1])
def test_a_path_with_mixtures_is_never_taken_for_one_without(effect: float) -> None:
    for seed in range(300):
        own, without, noise = scores(seed, 96, effect, 0.1)
        assert not nearer_without(own, without, own + noise)


def test_few_tokens_say_nothing() -> None:
    own = torch.zeros(1)
    assert not nearer_without(own, own + 1, own + 1)
    assert not nearer_without(own, own, own + 1)


@pytest.mark.parametrize(("noise", "telling"), [(0.3, True), (0.4, False)])
def test_a_limit_that_faults_pass_says_nothing(noise: float, telling: bool) -> None:
    own = torch.zeros(8)
    found = deviation(own, own, rounding(own, own + noise))
    assert not found.excessive
    assert found.telling == telling


def test_what_is_no_number_is_excessive() -> None:
    own = torch.tensor([-1.0, -2.0])
    assert deviation(own, torch.tensor([-1.0, math.nan]), rounding(own, own)).excessive
    assert not deviation(own, own, rounding(own, own)).excessive
    nothing = torch.full_like(own, math.nan)
    assert deviation(nothing, nothing, rounding(nothing, nothing)).excessive
