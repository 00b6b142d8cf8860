"""Several runs on one page: what they are called, how they are paired, and what is drawn."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from headless_browser import IN_BROWSER, OpenedPage
from made_run import HOSTILE, write_run

from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.compared_runs import ComparedRun, arms, read_run
from ngrpo.report.comparison_page import comparison, write_comparison
from ngrpo.report.overlays import overlays
from ngrpo.report.paired_runs import pairings
from ngrpo.report.run_records import IterationRecord, ProblemRate
from ngrpo.report.run_store import RunStore

NOW = datetime(2026, 3, 4, tzinfo=UTC)
GSPO, GRPO = {"algo": "gspo", "exploration": "neighbor"}, {"algo": "grpo", "exploration": "neighbor"}


def run(settings: dict[str, str], seed: int | None, **more: Any) -> ComparedRun:
    return ComparedRun(
        **({"run_dir": Path(f"/runs/{seed}"), "settings": settings, "seed": seed, "description": None,
            "iterations": [], "evaluations": []} | more)
    )  # fmt: skip


def evaluated(rates: list[float], done: int = 8) -> list[EvaluationResult]:
    mean = sum(rates) / len(rates)
    return [EvaluationResult(done, {"mean@1": mean, "pass@1": mean, "pass@2": 0.0, "pass@4": 0.0}, {"": rates})]


def test_runs_are_called_by_what_differs_and_seeds_stand_together():
    made = arms([run(GSPO, 0), run(GRPO, 0), run(GSPO, 1)])
    assert [(arm.label, list(arm.runs)) for arm in made] == [
        ("algo=gspo", ["algo=gspo, seed 0", "algo=gspo, seed 1"]),
        ("algo=grpo", ["algo=grpo"]),
    ]


def test_runs_that_differ_in_nothing_are_called_by_their_folders():
    twins = [run(GSPO, 0, run_dir=Path(f"/runs/{name}")) for name in ("one", "two")]
    assert [arm.label for arm in arms(twins)] == ["one", "two"]
    same_name = [run(GSPO, 0, run_dir=Path(f"/{place}/run")) for place in ("a", "b")]
    assert [arm.label for arm in arms(same_name)] == ["/a/run", "/b/run"]


def test_runs_without_a_seed_or_with_the_same_are_not_taken_together():
    unknown = [run(GSPO, None, run_dir=Path(f"/runs/{name}")) for name in ("one", "two")]
    assert [list(arm.runs) for arm in arms([*unknown, run(GSPO, 0), run(GSPO, 0, run_dir=Path("/runs/again"))])] == [
        ["one"], ["two"], ["0"], ["again"],
    ]  # fmt: skip


def test_differences_are_paired_by_problem():
    """Each problem is solved once more of four times: the difference is the same for all, its interval 0 wide."""
    first, second = run(GSPO, 0, evaluations=evaluated([0.0, 0.5])), run(GRPO, 0, evaluations=evaluated([0.25, 0.75]))
    (found,) = pairings(arms([first, second]))
    assert found.title == "held out, after 8 iterations, 2 problems"
    assert [row.metric for row in found.rows] == ["Mean@1", "Pass@2", "Pass@4"]
    mean = found.rows[0]
    assert mean.values == pytest.approx([0.25, 0.5])
    assert (mean.differences[0].value, mean.differences[0].low, mean.differences[0].high) == pytest.approx([0.25] * 3)
    four = found.rows[2]  # of four samples, at least one right: 0 and 1 against 1 and 1
    assert four.values == pytest.approx([0.5, 1.0])
    assert (four.differences[0].low, four.differences[0].high) == (0.0, 1.0)


def test_differences_are_paired_by_seed():
    """Seed 2 has no counterpart: it does not count."""
    runs = [run(GSPO, seed, evaluations=evaluated([rate])) for seed, rate in ((0, 0.0), (1, 0.5), (2, 1.0))]
    others = [run(GRPO, seed, evaluations=evaluated([rate])) for seed, rate in ((0, 0.25), (1, 1.0))]
    (found,) = pairings(arms([*runs, *others]))
    assert found.rows[0].values == pytest.approx([0.25, 0.625])


def test_the_last_evaluation_that_all_have_counts():
    long = [*evaluated([0.5], 4), *evaluated([1.0], 8)]
    (found,) = pairings(arms([run(GSPO, 0, evaluations=long), run(GRPO, 0, evaluations=evaluated([0.75], 4))]))
    assert found.title.startswith("held out, after 4 iterations")
    assert found.rows[0].differences[0].value == pytest.approx(0.25)


@pytest.mark.parametrize("other", [[], evaluated([0.5, 0.5]), evaluated([0.5], 7)])
def test_what_is_not_the_same_is_not_paired(other: list[EvaluationResult]):
    assert pairings(arms([run(GSPO, 0, evaluations=evaluated([0.5])), run(GRPO, 0, evaluations=other)])) == []


def test_training_problems_are_paired_in_the_last_quarter_of_the_shortest_run(tmp_path: Path):
    def trained(name: str, algo: str, iterations: int, solved: int, identity: str = "one") -> ComparedRun:
        folder = write_run(tmp_path / name, iterations=4, methods={"algo": algo}, data_identity=identity)
        store = RunStore(folder)
        for number in range(iterations):
            right = solved if number >= 6 else 0
            store.add_iteration(IterationRecord(number, {}, [ProblemRate(key, right, 4) for key in (1, number)]))
        return read_run(folder)

    runs = [trained("a", "gspo", 8, 2), trained("b", "grpo", 12, 3)]
    *_, found = pairings(arms(runs))
    assert found.title == "training, iterations 7 to 8, 3 problems that all met"
    assert found.rows[0].values == pytest.approx([0.5, 0.75])
    elsewhere = trained("c", "dapo", 8, 3, identity="another")
    assert not any(one.title.startswith("training") for one in pairings(arms([runs[0], elsewhere])))


def test_runs_of_different_lengths_and_metrics_are_drawn_together():
    first = [IterationRecord(n, {"train/reward": 0.5, "exploration/cosine_mean": 0.9}, []) for n in range(5)]
    second = [IterationRecord(n, {"train/reward": 0.25}, []) for n in range(3)]
    drawn = overlays(arms([run(GSPO, 0, iterations=first), run(GRPO, 0, iterations=second), run({}, 0)]))
    charts = {chart.title: chart.drawing()["series"] for section in drawn for chart in section.charts}
    assert {title: [len(line["x"]) for line in lines] for title, lines in charts.items()} == {
        "Reward, training": [5, 3], "How far mixtures lead: mean": [5],
    }  # fmt: skip
    assert [line["colour"] for line in charts["Reward, training"]] == [0, 1]


def test_a_folder_that_is_named_twice_or_is_no_run_is_refused(tmp_path: Path):
    folder = write_run(tmp_path / "a")
    with pytest.raises(SettingError, match="named twice"):
        comparison([folder, tmp_path / "b" / ".." / "a"], NOW)
    with pytest.raises(SettingError, match="holds no record"):
        comparison([folder, tmp_path], NOW)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        write_run(folder / "first", methods={"algo": "grpo"}, changed={}),
        write_run(folder / "second", iterations=20, rise=0.25, methods={"algo": HOSTILE[1]}, changed={}),
        write_run(folder / "third", iterations=6, seed=4, methods={"algo": "grpo"}, changed={}),
    ]
    return write_comparison(runs, folder / "comparison.html")


def test_text_of_runs_is_escaped(page: Path):
    text = page.read_text()
    assert HOSTILE[1] not in text
    table = text[text.index('id="runs"') : text.index('id="differences"')]
    assert re.findall("<tr><th scope=.row.>algo=(.*?)</th>", table) == [
        "grpo, seed 3", "grpo, seed 4", "&lt;img src=x onerror=&#39;window.pwned = 2&#39;&gt;",
    ]  # fmt: skip


class TestInABrowser:
    pytestmark = IN_BROWSER

    @pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
    def test_it_is_whole(self, browser: Any, page: Path, width: int, scheme: str):
        with OpenedPage(browser, page, width, scheme, ready="#timing-time-update_s canvas") as opened:
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
            assert opened.page.locator("#differences table").count() >= 1
            assert opened.page.locator("#reward .u-series").count() == 4
            assert opened.page.evaluate("window.pwned") is None
            assert opened.complaints == []
            assert opened.asked == [page.as_uri()]
