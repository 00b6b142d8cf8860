import pytest

from ngrpo.errors import SettingError
from ngrpo.evaluation.ks import chosen_ks, powers_of_two


@pytest.mark.parametrize(("limit", "expected"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (32, (1, 2, 4, 8, 16, 32))])
def test_powers_of_two_end_with_the_limit(limit: int, expected: tuple[int, ...]) -> None:
    assert powers_of_two(limit) == chosen_ks(None, limit) == expected


def test_chosen_ones_are_sorted_and_start_with_1() -> None:
    assert chosen_ks([16, 4, 4], 16) == (1, 4, 16)


@pytest.mark.parametrize("k", [0, -1, 17])
def test_a_k_beyond_n_is_refused(k: int) -> None:
    with pytest.raises(SettingError, match=rf"^k={k} has no unbiased Pass@k from n=16 samples; .*raise n\.$"):
        chosen_ks([1, k], 16)


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^k=\[\] reports nothing; .*or set k=null\.$"):
        chosen_ks([], 16)
