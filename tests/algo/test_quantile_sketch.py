"""The t-digest against the numbers themselves."""

import numpy as np
import pytest

from ngrpo.algo.quantile_sketch import QuantileSketch

SHARES = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]


@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_few_numbers_are_all_kept(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    sketch = QuantileSketch()
    for value in values:
        sketch.add([float(value)])
    assert sketch.count == count == len(sketch.centroids)
    assert [sketch.quantile(share) for share in SHARES] == np.quantile(values, SHARES, method="inverted_cdf").tolist()


@pytest.mark.parametrize("kind", ["normal", "shares of eight", "rising"])
@pytest.mark.parametrize("together", [1, 7, 64])
def test_many_numbers_take_little_room_and_little_is_lost(kind: str, together: int) -> None:
    generator = np.random.default_rng(3)
    values = {
        "normal": generator.normal(size=6000),
        "shares of eight": generator.integers(0, 9, size=6000) / 8,
        "rising": np.arange(6000.0),
    }[kind]
    sketch = QuantileSketch()
    for start in range(0, len(values), together):
        sketch.add(values[start : start + together].tolist())
    assert sketch.count == len(values)
    assert len(sketch.centroids) < 120
    assert sum(mean * count for mean, count in sketch.centroids) == pytest.approx(values.sum(), rel=1e-9, abs=1e-6)
    for share in SHARES:
        found = sketch.quantile(share)
        if kind == "shares of eight":
            assert found == np.quantile(values, share, method="inverted_cdf")
        below, at_most = float((values < found).mean()), float((values <= found).mean())
        assert below - 0.02 <= share <= at_most + 0.02


def test_what_was_stored_goes_on_in_the_same_way() -> None:
    values = np.random.default_rng(1).normal(size=500).tolist()
    whole, first = QuantileSketch(), QuantileSketch()
    whole.add(values[:300])
    first.add(values[:300])
    rest = QuantileSketch(first.centroids)
    for one in (whole, rest):
        one.add(values[300:])
    assert whole.centroids == rest.centroids


def test_nothing_has_no_quantiles() -> None:
    with pytest.raises(ValueError, match="no numbers"):
        QuantileSketch().quantile(0.5)
