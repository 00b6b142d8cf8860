"""Which metrics a table shows."""

from ngrpo.evaluation.table_rows import table_rows


def test_pass_at_1_is_not_shown_beside_the_mean() -> None:
    assert table_rows(["mean@1", "pass@1", "pass@16", "length"]) == ["mean@1", "pass@16", "length"]
    assert table_rows(["mean@32", "pass@1", "pass@2"]) == ["mean@32", "pass@2"]
    assert table_rows(["mean", "pass@1"]) == ["mean"]


def test_each_benchmark_is_looked_at_by_itself() -> None:
    assert table_rows(["a/mean@1", "a/pass@1", "b/pass@1", "pass@1"]) == ["a/mean@1", "b/pass@1", "pass@1"]


def test_pass_at_1_stays_without_a_mean_and_nothing_is_shown_twice() -> None:
    assert table_rows(["pass@1", "pass@4", "pass@1", "meaning"]) == ["pass@1", "pass@4", "meaning"]
