from itertools import combinations

import pytest

from ngrpo.study.rarefaction import expected_distinct


@pytest.mark.parametrize("kinds", [[1, 1, 2, 3, 3, 3], ["a", None, "b", "a", None], [None, None, None], [1, 2, 3, 4]])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_is_the_mean_over_all_subsets(kinds: list[object], m: int) -> None:
    subsets = list(combinations(kinds, m))
    slow = sum(len(set(subset) - {None}) for subset in subsets) / len(subsets)
    assert expected_distinct(kinds, m) == pytest.approx(slow, abs=1e-12)  # type: ignore[arg-type]


def test_all_samples_give_the_plain_count_and_too_few_nothing() -> None:
    assert expected_distinct([1, 1, 2], 3) == pytest.approx(2.0)
    assert expected_distinct([1, 1, 2], 4) is None
    assert expected_distinct([], 1) is None
