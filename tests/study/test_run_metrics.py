from itertools import combinations
from pathlib import Path

import pytest
from made_answers import random_rows, row, table

from ngrpo.report.run_records import IterationRecord
from ngrpo.report.run_store import RunStore
from ngrpo.study.definition import DiversityConfig
from ngrpo.study.run_metrics import answer_statistics, curves

DIVERSITY = DiversityConfig(path="calculations", group=3, alike=2)


def distinct(kinds: list[object], m: int) -> float | None:
    """The mean over all subsets of m."""
    subsets = list(combinations(kinds, m))
    return sum(len(set(one) - {None}) for one in subsets) / len(subsets) if len(kinds) >= m else None


def test_figures_are_those_of_the_rows() -> None:
    rows = random_rows(problems=7, n=6)
    for number, one in enumerate(rows):
        one["text"] = ["no steps", "1+1=2", "1+1=2, 2+1=3", "2 + 1 = 3"][number % 4]
    found = answer_statistics(table(rows), DIVERSITY)
    usable = [p for p in range(7) if all(r["verdict"] != "unparsable_reference" for r in rows if r["problem"] == p)]
    assert len(usable) == 6
    for index, problem in enumerate(usable):
        mine = sorted((one for one in rows if one["problem"] == problem), key=lambda one: one["sample"])
        paths = ["".join(one["text"].replace(",", " ").split()) for one in mine]
        answers = [None if m["answer"] is None else "right" if m["correct"] else m["answer"].strip() for m in mine]
        right = [one["correct"] for one in mine]
        wrong_answers = [answer for answer, ok in zip(answers, right, strict=True) if not ok]
        right_paths = [path for path, ok in zip(paths, right, strict=True) if ok]
        assert found.right[index] == sum(right)
        for name, value in (
            ("answers", distinct(answers, 3)),
            ("paths", distinct(paths, 3)),
            ("wrong_answers", distinct(wrong_answers, 2)),
            ("right_paths", distinct(right_paths, 2)),
        ):
            shown = getattr(found, name)[index]
            assert (shown is None) == (value is None)
            assert value is None or shown == pytest.approx(value, abs=6e-4)
    kept = [one for one in rows if one["problem"] in usable]
    assert found.samples == 6
    assert found.length == pytest.approx(sum(one["length"] for one in kept) / len(kept), abs=1e-3)
    assert found.truncated == pytest.approx(sum(one["truncated"] for one in kept) / len(kept), abs=1e-5)
    assert set(found.majority) == {"2", "4", "6"}


def test_too_few_right_or_wrong_answers_leave_a_gap() -> None:
    rows = [row(0, 0, "1", True, text="1+1=2"), row(0, 1, "2"), row(0, 2, None)]
    found = answer_statistics(table(rows), DIVERSITY)
    assert (found.right_paths, found.wrong_answers) == ([None], [1.0])


def test_curves_are_the_metrics_that_every_iteration_has(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for iteration in range(3):
        metrics = {"policy/entropy": 1.234567 / (iteration + 1), "other": 1.0}
        metrics |= {"exploration/cosine_mean": 0.9} if iteration else {}
        store.add_iteration(IterationRecord(iteration, metrics, []))
    assert curves(tmp_path) == {"policy/entropy": [1.2346, 0.61728, 0.41152]}
    assert curves(tmp_path / "nothing") == {}
