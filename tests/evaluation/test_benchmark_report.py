"""The figures against plain Python over the rows."""

import direct_figures as direct
import pytest
from made_answers import random_rows, row, table

from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_table import answers_of
from ngrpo.evaluation.benchmark_report import Report, average, report


@pytest.mark.parametrize(("n", "ks"), [(8, (1, 2, 4, 8)), (6, (1, 2, 4, 6)), (1, (1,)), (5, (1, 5))])
def test_figures_are_those_of_a_direct_computation(n: int, ks: tuple[int, ...]) -> None:
    rows = random_rows(problems=9, n=n, seed=n)
    found = report(answers_of(table(rows)), ks)
    expected = direct.figures(rows, list(ks))
    assert {name: one.value for name, one in found.metrics.items()} == pytest.approx(expected, abs=1e-12)
    assert (found.problems, found.samples, found.unusable_references) == (8, n, 1)
    assert all(one.low <= one.value <= one.high for one in found.metrics.values())


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    rows = random_rows(problems=4, n=6)[:]
    for one in rows:
        one["verdict"] = "wrong"
    groups = direct.by_problem(rows)
    found = report(answers_of(table(rows)), (1, 3)).metrics["pass@3"].value
    assert found == pytest.approx(sum(direct.best_of_all_subsets(one, 3) for one in groups) / len(groups))


def test_an_interval_is_over_problems_not_over_answers() -> None:
    """Ten equal problems leave nothing to chance; ten that are all right or all wrong leave much."""
    equal = [row(p, s, correct=s == 0) for p in range(10) for s in range(2)]
    split = [row(p, s, correct=p < 5) for p in range(10) for s in range(2)]
    sure, unsure = (report(answers_of(table(rows)), (1, 2)).metrics["mean@2"] for rows in (equal, split))
    assert (sure.value, sure.low, sure.high) == pytest.approx((0.5, 0.5, 0.5))
    assert unsure.value == pytest.approx(0.5)
    assert unsure.low < 0.3
    assert unsure.high > 0.7


def test_the_average_weighs_benchmarks_equally_and_takes_common_metrics() -> None:
    one = report(answers_of(table([row(p, s, correct=True) for p in range(6) for s in range(2)])), (1, 2))
    other = report(answers_of(table([row(0, s) for s in range(2)])), (1,))
    found = average([one, other])
    assert found["mean@2"] == pytest.approx(0.5)
    assert "pass@2" not in found
    assert isinstance(one, Report)


def test_without_a_usable_reference_there_is_no_figure() -> None:
    with pytest.raises(SettingError, match=r"no reference of the data .*answer_field\.$"):
        report(answers_of(table([row(0, 0, verdict="unparsable_reference")])), (1,))
