"""Which numbers the charts show."""

from pathlib import Path

import pytest
from made_run import write_run

from ngrpo.report.figures import charts, learning, pass_at_k, problems
from ngrpo.report.run_records import EvaluationRecord, IterationRecord, ProblemRate
from ngrpo.report.run_store import RunStore


def visits(*rates: list[int]) -> list[IterationRecord]:
    """An iteration a list; the number at place p is how often problem p was solved of 4."""
    return [
        IterationRecord(i, {}, [ProblemRate(p, solved, 4) for p, solved in enumerate(row)])
        for i, row in enumerate(rates)
    ]


def test_a_run_with_everything_has_every_chart(tmp_path: Path):
    store = RunStore(write_run(tmp_path))
    made = charts(store.iterations(), store.evaluations())
    assert [chart.name for chart in made] == ["learning", "pass-at-k", "problems", "length", "entropy", "timing"]
    learning = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in made[0].figure.data}
    assert learning["Mean@1, held out"] == [(0, 0.3), (6, 0.55), (12, 0.8)]
    assert learning["reward, training"][0] == (1, 0.0)  # iterations done


def test_a_run_of_one_iteration_has_what_there_is():
    assert charts([IterationRecord(0, {}, [])], []) == []
    made = charts([IterationRecord(0, {"train/reward": 0.5}, [])], [])
    assert [chart.name for chart in made] == ["learning"]
    assert made[0].numbers[1] == [["reward, training", "0.5", "0.5", "0.5", "0.5"]]


def test_pass_at_k_of_first_and_last_evaluation():
    evaluations = [
        EvaluationRecord(n, {"pass@2": 0.5 + n / 10, "pass@16": 1.0, "pass@1": n / 10}, {"": []}) for n in range(3)
    ]
    chart = pass_at_k([], evaluations)
    assert [(t.name, t.x, t.y) for t in chart.figure.data] == [
        ("held out, iteration 0", (1, 2, 16), (0.0, 0.5, 1.0)),
        ("held out, iteration 2", (1, 2, 16), (0.2, 0.7, 1.0)),
    ]


def test_each_benchmark_has_its_own_curves_and_rows():
    metrics = {"a/mean@1": 0.25, "a/pass@1": 0.25, "b/mean@1": 0.5, "b/pass@1": 0.5, "b/pass@2": 0.75}
    rates = {"a/": [0.25], "b/": [0.0, 1.0]}
    evaluations = [EvaluationRecord(n, metrics, rates) for n in (0, 3)]
    assert [t.name for t in learning([], evaluations).figure.data] == ["Mean@1, a", "Mean@1, b"]
    curves = {t.name: t.y for t in pass_at_k([], evaluations).figure.data}
    assert list(curves) == ["a, iteration 0", "a, iteration 3", "b, iteration 0", "b, iteration 3"]
    assert curves["b, iteration 3"] == (0.5, 0.75)
    heat = problems([], evaluations).figure.data[0]
    assert [row[0] for row in heat.text] == ["b/problem 1", "a/problem 0", "b/problem 0"]


def test_pass_at_k_of_training_groups_without_evaluations():
    records = [IterationRecord(n, {"train/pass@1": n / 10, "train/pass@4": n / 5}, []) for n in range(4)]
    chart = pass_at_k(records, [])
    assert [t.y for t in chart.figure.data] == [pytest.approx((0.05, 0.1)), pytest.approx((0.25, 0.5))]


def test_training_problems_by_visit():
    chart = problems(visits([0, 4, 1], [1, 4], [2]), [])
    heat = chart.figure.data[0]
    assert [list(row) for row in heat.z] == [[1.0, 1.0, None], [0.0, 0.25, 0.5]]  # problem 2 was met once
    assert [row[0] for row in heat.text] == ["problem 1", "problem 0"]
    assert ["always solved", "1"] in chart.numbers[1]


def test_problems_met_once_make_no_heat_map():
    assert problems(visits([0, 1]), []) is None


def test_many_problems_are_thinned_evenly():
    many = [EvaluationRecord(n, {}, {"": [i / 999 for i in range(1000)]}) for n in (0, 9)]
    chart = problems([], many)
    ends = [row[-1] for row in chart.figure.data[0].z]
    assert len(ends) == 200
    assert ends[0] == 1.0
    assert ends[-1] < 0.01
    assert "200 of 1000" in chart.note
