"""Which numbers the charts show."""

from pathlib import Path

import pytest
from made_run import write_run

from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.chart import Chart, LineChart, Series
from ngrpo.report.evaluation_charts import learning, pass_at_k, pass_over_training, problems
from ngrpo.report.figures import sections
from ngrpo.report.metric_charts import UPDATE, MetricChart
from ngrpo.report.run_records import IterationRecord, ProblemRate
from ngrpo.report.run_store import RunStore


def visits(*rates: list[int]) -> list[IterationRecord]:
    """An iteration a list; the number at place p is how often problem p was solved of 4."""
    return [
        IterationRecord(i, {}, [ProblemRate(p, solved, 4) for p, solved in enumerate(row)])
        for i, row in enumerate(rates)
    ]


def lines(chart: Chart | None) -> dict[str, list[tuple[float, float]]]:
    assert isinstance(chart, LineChart)
    return {line.label: list(line.points) for line in chart.series}


def names(iterations: list[IterationRecord], evaluations: list[EvaluationResult]) -> dict[str, list[str]]:
    return {s.name: [chart.name for chart in s.charts] for s in sections(iterations, evaluations)}


def test_a_run_with_everything_has_every_chart(tmp_path: Path):
    store = RunStore(write_run(tmp_path))
    assert names(store.iterations(), store.evaluations()) == {
        "learning-section": ["learning", "pass-at-k", "pass-over-training", "problems"],
        "exploration-section": [
            "mixed-share", "cosine", "anchor-weight", "reward-by-mixing", "entropy", "schedule", "learned",
        ],
        "update-section": ["clip", "ratio", "mismatch", "grad-norm"],
        "responses-section": ["length", "timing"],
    }  # fmt: skip


def test_every_axis_has_a_title(tmp_path: Path):
    store = RunStore(write_run(tmp_path))
    for section in sections(store.iterations(), store.evaluations()):
        for chart in section.charts:
            drawing = chart.drawing()
            assert drawing["xTitle"], chart.name
            assert drawing["yTitle"], chart.name


def test_reward_and_evaluations_over_the_iterations_that_are_done(tmp_path: Path):
    store = RunStore(write_run(tmp_path))
    found = lines(learning(store.iterations(), store.evaluations()))
    assert found["Mean@1, held out"] == [(0, 0.3), (6, 0.55), (12, 0.8)]
    assert found["reward, training"][0] == (1, 0.0)
    assert list(found) == ["reward, training", "Mean@1, held out"]  # Mean@1 of training is the reward


def test_a_reward_that_is_not_correctness_leaves_mean_at_1_its_line():
    records = [IterationRecord(n, {"train/reward": -1.0, "train/mean@1": 0.5}, []) for n in range(2)]
    assert list(lines(learning(records, []))) == ["reward, training", "Mean@1, training"]


def test_a_run_of_one_iteration_has_what_there_is():
    assert names([IterationRecord(0, {}, [])], []) == {}
    records = [IterationRecord(0, {"train/reward": 0.5}, [])]
    assert names(records, []) == {"learning-section": ["learning"]}
    assert learning(records, []).numbers[1] == [["reward, training", "0.5", "0.5", "0.5", "0.5"]]


def test_what_is_not_in_use_has_no_chart():
    without = [IterationRecord(n, {"policy/kl": 0.0}, []) for n in range(3)]
    assert names(without, []) == {}
    assert names([*without, IterationRecord(3, {"policy/kl": 0.5}, [])], []) == {"update-section": ["kl"]}


def test_a_metric_that_is_missing_at_times_has_a_line_of_the_rest():
    records = [IterationRecord(n, {"policy/grad_norm": 1.0 + n} if n != 1 else {}, []) for n in range(3)]
    (chart,) = (made for one in UPDATE if (made := one.of(records)) is not None)
    assert lines(chart) == {"policy": [(1, 1.0), (3, 3.0)]}


def test_a_logarithmic_axis_leaves_out_what_it_has_no_place_for():
    records = [IterationRecord(n, {"x": y}, []) for n, y in enumerate((0.0, 1e-7, -1.0))]
    made = MetricChart("x", "x", "x", "nats", {"x": "x"}, log_y=True).of(records)
    assert lines(made) == {"x": [(2, 1e-7)]}


def test_pass_at_k_of_first_and_last_evaluation():
    evaluations = [
        EvaluationResult(n, {"pass@2": 0.5 + n / 10, "pass@16": 1.0, "pass@1": n / 10}, {"": []}) for n in range(3)
    ]
    assert lines(pass_at_k([], evaluations)) == {
        "held out, iteration 0": [(1, 0.0), (2, 0.5), (16, 1.0)],
        "held out, iteration 2": [(1, 0.2), (2, 0.7), (16, 1.0)],
    }


def test_pass_at_k_has_intervals_over_problems():
    """Two problems of two samples, one always and one never solved: Pass@k is 0, 0.5 or 1, by what is drawn."""
    evaluations = [EvaluationResult(n, {"pass@1": 0.5, "pass@2": 0.5}, {"": [0.0, 1.0]}) for n in (0, 4)]
    chart = pass_at_k([], evaluations)
    assert all(list(line.interval) == [(0.0, 1.0), (0.0, 1.0)] for line in chart.series)
    assert chart.numbers == (
        ["k", "1", "2"],
        [[f"held out, iteration {n}", "0.5 [0, 1]", "0.5 [0, 1]"] for n in (0, 4)],
    )


def test_pass_at_k_over_training_shows_a_few_k():
    evaluations = [EvaluationResult(n, {f"pass@{1 << i}": i / 10 for i in range(9)}, {"": []}) for n in (0, 4)]
    assert list(lines(pass_over_training([], evaluations))) == ["k = 1", "k = 4", "k = 16", "k = 64", "k = 256"]


def test_each_benchmark_has_its_own_curves_and_rows():
    metrics = {"a/mean@1": 0.25, "a/pass@1": 0.25, "b/mean@1": 0.5, "b/pass@1": 0.5, "b/pass@2": 0.75}
    rates = {"a/": [0.25], "b/": [0.0, 1.0]}
    evaluations = [EvaluationResult(n, metrics, rates) for n in (0, 3)]
    assert list(lines(learning([], evaluations))) == ["Mean@1, a", "Mean@1, b"]
    curves = lines(pass_at_k([], evaluations))
    assert list(curves) == ["a, iteration 0", "a, iteration 3", "b, iteration 0", "b, iteration 3"]
    assert curves["b, iteration 3"] == [(1, 0.5), (2, 0.75)]
    assert list(lines(pass_over_training([], evaluations))) == ["k = 1, a", "k = 1, b", "k = 2, b"]
    heat = problems([], evaluations)
    assert [name for name, _ in heat.rows] == ["b/problem 0", "a/problem 0", "b/problem 1"]


def test_pass_at_k_of_training_groups_without_evaluations():
    records = [IterationRecord(n, {"train/pass@1": n / 10, "train/pass@4": n / 5}, []) for n in range(4)]
    found = list(lines(pass_at_k(records, [])).values())
    assert [[y for _, y in line] for line in found] == [pytest.approx([0.05, 0.1]), pytest.approx([0.25, 0.5])]
    assert lines(pass_over_training(records, []))["k = 4"] == [(1, 0.0), (2, 0.2), (3, 0.4), (4, 0.6)]


def test_training_problems_by_visit():
    heat = problems(visits([0, 4, 1], [1, 4], [2]), [])
    assert heat.rows == [("problem 0", [0.0, 0.25, 0.5]), ("problem 1", [1.0, 1.0])]  # problem 2 was met once
    assert ["always solved", "1"] in heat.numbers[1]


def test_problems_met_once_make_no_heat_map():
    assert problems(visits([0, 1]), []) is None


def test_many_problems_are_thinned_evenly():
    many = [EvaluationResult(n, {}, {"": [i / 999 for i in range(1000)]}) for n in (0, 9)]
    heat = problems([], many)
    ends = [rates[-1] for _, rates in heat.rows]
    assert len(ends) == 200
    assert ends[0] == 0.0
    assert ends[-1] > 0.99
    assert "200 of 1000" in heat.note


def test_what_is_drawn_takes_few_digits_and_no_minus_nothing():
    line = Series("a", [(1, 1 / 3), (2, -0.0)])
    chart = LineChart("a", "a", "a", "iterations", "nats", [line])
    assert chart.drawing()["series"][0]["y"] == [0.333333, 0.0]
    assert chart.numbers[1] == [["a", "0.3333", "0", "0", "0.3333"]]
