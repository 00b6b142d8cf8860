import math
import random

import pytest

from ngrpo.study.statistics import Mean, detectable, holm, mean_of, p_value, paired, t_quantile


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


def test_p_value_is_where_the_interval_begins_to_hold_zero() -> None:
    half = t_quantile(0.975, 4)
    assert p_value(Mean(half, 0.0, 2 * half, 5)) == pytest.approx(0.05, abs=1e-9)
    assert p_value(Mean(-half, -2 * half, 0.0, 5)) == pytest.approx(0.05, abs=1e-9)
    assert p_value(mean_of([1.0, -1.0])) == pytest.approx(1.0)
    assert p_value(mean_of([0.0, 0.0])) == 1.0
    assert p_value(mean_of([0.5, 0.5])) == 0.0
    assert p_value(mean_of([0.5, math.nan, 0.6])) == 1.0
    assert p_value(mean_of([0.5, math.inf, 0.6])) == 1.0
    with pytest.raises(ValueError, match="single seed"):
        p_value(mean_of([1.0]))


def test_p_values_are_even_where_nothing_differs() -> None:
    rng = random.Random(1)
    found = [p_value(mean_of([rng.gauss(0, 3) for _ in range(6)])) for _ in range(3000)]
    for level in (0.05, 0.3, 0.8):
        assert sum(p <= level for p in found) / len(found) == pytest.approx(level, abs=0.025)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, 0.5], 8) == pytest.approx([0.08, 1.0])
    assert holm([], 3) == []
    with pytest.raises(ValueError, match="no part of a family of 1"):
        holm([0.1, 0.2], 1)


def test_holm_rejects_a_true_hypothesis_as_seldom_as_it_says() -> None:
    rng, wrong = random.Random(2), 0
    for _ in range(4000):
        true, false = [rng.random() for _ in range(5)], [rng.random() * 1e-4 for _ in range(3)]
        wrong += min(holm([*true, *false], 8)[:5]) <= 0.05
    assert wrong / 4000 == pytest.approx(0.05, abs=0.012)


def test_an_effect_of_the_detectable_size_is_found_as_often_as_it_says() -> None:
    rng, n, family, sd = random.Random(3), 10, 8, 0.02
    effect, found = detectable(sd, n, family), 0
    for _ in range(4000):
        found += p_value(mean_of([rng.gauss(effect, sd) for _ in range(n)])) <= 0.05 / family
    assert found / 4000 == pytest.approx(0.8, abs=0.03)
    assert 0.027 < effect < 0.03
    assert detectable(sd, 20, family) < effect < detectable(sd, 5, family)
