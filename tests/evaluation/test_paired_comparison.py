"""Paired differences against plain Python over the rows."""

import json
from pathlib import Path

import direct_figures as direct
import pytest
import torch
from forked import server, succeed
from made_answers import random_rows, row, table
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.bootstrap import interval
from ngrpo.evaluation.paired_comparison import compare, compare_runs


def store(run: Path, rows: list[dict], name: str = "amc23") -> Path:
    kept = AnswerStore(run / name)
    kept.open({})
    kept.add(table(rows))
    return run


def without(rows: list[dict], problems: set[int]) -> list[dict]:
    return [one for one in rows if one["problem"] not in problems]


def test_values_are_those_of_the_common_usable_problems() -> None:
    first, second = random_rows(9, 4, seed=1), random_rows(9, 4, seed=2)
    unusable = {one["problem"] for rows in (first, second) for one in rows if one["verdict"] == "unparsable_reference"}
    left = unusable | {3}
    found = compare("a", [table(first), table(without(second, {3}))])
    assert found.problems == 9 - len(left)
    for place, rows in enumerate((first, second)):
        expected = direct.figures(without(rows, left), [1, 2, 4])
        expected["mean"] = expected.pop("mean@4")
        assert {m: one.values[place] for m, one in found.metrics.items()} == pytest.approx(expected, abs=1e-12)
    for one in found.metrics.values():
        (difference,) = one.differences
        assert difference.value == pytest.approx(one.values[1] - one.values[0])


def test_the_interval_is_that_of_the_problems_differences() -> None:
    """Problems of very different difficulty, the second run a little better on each."""
    solved = [p // 2 for p in range(20)]
    first = [row(p, s, correct=s < solved[p]) for p in range(20) for s in range(11)]
    second = [row(p, s, correct=s <= solved[p]) for p in range(20) for s in range(11)]
    (difference,) = compare("a", [table(first), table(second)]).metrics["mean"].differences
    assert (difference.value, difference.low, difference.high) == pytest.approx((1 / 11,) * 3)
    rows = [row(p, s, correct=s < solved[p] + p % 3) for p in range(20) for s in range(11)]
    (difference,) = compare("a", [table(first), table(rows)], seed=4).metrics["mean"].differences
    low, high = interval(torch.tensor([[p % 3 / 11] for p in range(20)], dtype=torch.float64), seed=4)
    assert (difference.low, difference.high) == pytest.approx((low.item(), high.item()))


def test_runs_of_different_n_are_compared_up_to_the_smaller() -> None:
    found = compare("a", [table(random_rows(5, 8)), table(random_rows(5, 4, seed=1))])
    assert {"mean", "pass@1", "pass@4", "maj@4"} <= found.metrics.keys()
    assert "pass@8" not in found.metrics


def test_other_problems_under_the_same_name_are_refused() -> None:
    with pytest.raises(SettingError, match="a is not the same data in all runs"):
        compare("a", [table([row(0, 0)]), table([row(0, 0, question="another")])])
    with pytest.raises(SettingError, match="a has no usable problem"):
        compare("a", [table([row(0, 0)]), table([row(1, 0)])])


def test_only_common_benchmarks_are_compared(tmp_path: Path) -> None:
    first = store(store(tmp_path / "1", [row(0, 0)]), [row(0, 0)], "aime24")
    second = store(tmp_path / "2", [row(0, 0)])
    assert list(compare_runs([first, second])) == ["amc23"]
    with pytest.raises(SettingError, match="no benchmark in common"):
        compare_runs([second, store(tmp_path / "3", [row(0, 0)], "aime24")])


def test_the_script_prints_three_runs_as_json_and_as_a_table(tmp_path: Path) -> None:
    runs = [str(store(tmp_path / str(seed), random_rows(6, 4, seed=seed))) for seed in range(3)]
    found = json.loads(succeed("compare.py", *runs, "--json"))
    assert found["runs"] == runs
    expected = compare_runs([Path(run) for run in runs])["amc23"].metrics["pass@4"]
    shown = found["benchmarks"]["amc23"]["metrics"]["pass@4"]
    assert shown["values"] == expected.values
    assert [one["low"] for one in shown["differences"]] == [one.low for one in expected.differences]
    assert "pass@4" in succeed("compare.py", *runs)
    gone = server().run(["compare.py", *runs, str(tmp_path / "gone")], ROOT)
    assert gone.status == 1
    assert gone.said.startswith("error: ")
    assert "holds no stored answers" in gone.said
