import math
import random

import pytest

from ngrpo.study.statistics import mean_of, paired, t_quantile


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (30, 2.04227), (1000, 1.96234)]
)
def test_t_quantiles_are_those_of_printed_tables(freedom: int, value: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(value, abs=1e-4)


def test_interval_by_hand() -> None:
    found = mean_of([1.0, 2.0, 6.0])
    half = 4.30265 * math.sqrt(7.0 / 3)  # variance (4 + 1 + 9) / 2 = 7
    assert (found.value, found.n) == (3.0, 3)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-4)


def test_interval_covers_as_often_as_it_says() -> None:
    rng = random.Random(0)
    intervals = [mean_of([rng.gauss(5, 2) for _ in range(5)]) for _ in range(4000)]
    covered = sum(one.low <= 5 <= one.high for one in intervals) / len(intervals)
    assert covered == pytest.approx(0.95, abs=0.012)


def test_one_seed_has_no_interval_and_none_no_mean() -> None:
    one = mean_of([2.5])
    assert (one.value, one.n) == (2.5, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    with pytest.raises(ValueError, match="at least one"):
        mean_of([])


def test_pairs_are_of_equal_seeds() -> None:
    found = paired({0: 1.0, 1: 5.0, 7: 100.0}, {1: 4.0, 0: 3.0, 2: 50.0})
    assert found == mean_of([1.0 - 3.0, 5.0 - 4.0])
    assert paired({0: 1.0}, {1: 1.0}) is None
