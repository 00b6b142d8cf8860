import pytest
import torch

from ngrpo.evaluation.bootstrap import RESAMPLES, interval


def test_is_that_of_means_over_drawn_rows() -> None:
    values = torch.rand(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = torch.randint(7, (RESAMPLES, 7), generator=torch.Generator().manual_seed(3))
    means = values[drawn].mean(1)
    low, high = interval(values, seed=3)
    assert low.tolist() == pytest.approx(means.quantile(0.025, dim=0).tolist())
    assert high.tolist() == pytest.approx(means.quantile(0.975, dim=0).tolist())


def test_is_close_to_the_normal_one_for_many_problems() -> None:
    values = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
    mean = values.mean().item()
    half = 1.96 * values.std().item() / 20
    low, high = interval(values)
    assert (low.item(), high.item()) == pytest.approx((mean - half, mean + half), abs=0.1 * half)


def test_constant_metrics_have_no_width_and_seeds_differ() -> None:
    low, high = interval(torch.full((5, 1), 0.25))
    assert low.item() == pytest.approx(0.25)
    assert high.item() == pytest.approx(0.25)
    values = torch.rand(50, 1, generator=torch.Generator().manual_seed(0))
    assert interval(values, seed=1)[0].item() != interval(values, seed=2)[0].item()
    assert interval(values, seed=1)[0].item() == interval(values, seed=1)[0].item()
