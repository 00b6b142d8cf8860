import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_leaderboard import setting

from ngrpo.study.leaderboard.files import publish
from ngrpo.study.leaderboard.page import markdown, page, write_leaderboard
from ngrpo.study.leaderboard.rows import Cell, Table, levels_table, primary_table, setting_table
from ngrpo.study.primary_family import comparisons
from ngrpo.study.results import Results
from ngrpo.study.statistics import detectable, holm, p_value


def test_rows_show_figures_differences_and_the_control(tmp_path: Path) -> None:
    table = setting_table(setting())
    assert all(len(row) == len(table.heads) for row in table.rows)
    rows = {row[0].text: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert list(rows) == ["untrained", "token_grpo", "neighbor_grpo"]
    assert (rows["token_grpo"]["strength"].text, rows["neighbor_grpo"]["strength"].text) == ("", "rate=0.1")
    assert rows["token_grpo"]["Mean@1"].number == 0.5
    assert rows["token_grpo"]["tokens"].number == 1000.5
    assert rows["token_grpo"]["newly solved"].number == 0.75
    assert rows["neighbor_grpo"]["Pass@4 - token_grpo"] == rows["neighbor_grpo"]["Pass@4 - its control"]
    assert rows["token_grpo"]["Pass@4 - its control"] == rows["untrained"]["tokens"] == Cell("")


def test_primary_comparisons_are_corrected_over_all_settings() -> None:
    one, other = comparisons([setting("a"), setting("b")])
    assert one.difference is not None
    p = p_value(one.difference)
    assert [one.adjusted_p, other.adjusted_p] == holm([p, p], 2)
    assert one.detectable == detectable(0.1, 2, 2)
    assert one.verdict == "not decided"
    alone = comparisons([setting("a")])[0]
    assert alone.adjusted_p == holm([p], 2)[0]
    table = primary_table([one])
    assert table.rows[0][1].text == "neighbor_grpo - token_grpo"
    assert table.rows[0][3] == Cell("2 of 2", 2)
    assert "a probability of 0.8 after correction" in table.note
    assert "a probability of 0.8 or 0.9 after" in primary_table([one, replace(one, power=0.9)]).note


MEAN = {"arm": "neighbor_grpo", "against": "token_grpo", "metric": "mean@1"}


def with_primary(made: Results, **changed: object) -> Results:
    return replace(made, study={**made.study, "primary": {**made.study["primary"], **changed}})


def test_comparisons_without_runs_count_in_the_correction() -> None:
    family = [with_primary(setting(name), family=1) for name in "abc"]
    higher = [1, 1, 1], [1, 1, 2]
    runs = [
        replace(run, test=replace(run.test, right=[0, 0, 0] if run.arm == "token_grpo" else higher[run.seed]))
        for run in family[0].runs
    ]
    family[0] = with_primary(replace(family[0], runs=runs), family=1, comparisons=[MEAN])
    one, *others = comparisons([family[0], *(replace(made, runs=[]) for made in family[1:])])
    assert one.difference is not None
    assert one.adjusted_p == pytest.approx(3 * p_value(one.difference))
    assert one.adjusted_p < 1
    assert [other.verdict for other in others] == ["open", "open"]


def test_seeds_beyond_the_planned_ones_decide_nothing() -> None:
    made = setting()
    more = [replace(run, seed=run.seed + 2) for run in made.runs if run.arm == "token_grpo"]
    more += [replace(run, seed=3, test=replace(run.test, right=[4, 4, 4])) for run in made.runs if run.seed == 1]
    assert comparisons([replace(made, runs=[*made.runs, *more])]) == comparisons([made])
    without = [run for run in made.runs if run.seed]
    (found,) = comparisons([replace(made, runs=[*without, *more])])
    assert found.difference is not None
    assert (found.difference.n, found.verdict) == (1, "open")


def test_arms_say_how_far_they_are_and_whether_they_learned() -> None:
    made = setting()
    assert made.base is not None

    def shown(right: list[int], results: Results = made) -> list[str]:
        runs = [replace(run, test=replace(run.test, right=right)) for run in results.runs]
        table = setting_table(replace(results, runs=runs))
        at = [table.heads.index(head) for head in ("seeds", "learned")]
        return [table.rows[-1][column].text for column in at]

    assert sum(made.base.right) == 2
    assert shown([1, 2, 2]) == ["2 of 2", "yes"]
    assert shown([0, 0, 2]) == shown([0, 0, 1]) == ["2 of 2", "no"]
    assert shown([1, 2, 2], replace(made, runs=[run for run in made.runs if run.seed == 0])) == ["1 of 2", ""]


@pytest.mark.parametrize(
    ("value", "adjusted_p", "n", "verdict"),
    [(0.1, 0.01, 2, "higher"), (-0.1, 0.01, 2, "lower"), (0.1, 0.06, 2, "not decided"), (0.1, 0.01, 1, "open")],
)
def test_verdicts(value: float, adjusted_p: float, n: int, verdict: str) -> None:
    (found,) = comparisons([setting()])
    assert found.difference is not None
    assert (
        replace(found, difference=replace(found.difference, value=value, n=n), adjusted_p=adjusted_p).verdict == verdict
    )
    assert replace(found, difference=None).verdict == "open"


def test_page_fetches_nothing_and_shows_text_as_text() -> None:
    made = page([Table("<t>", "a & b", ["x<y"], [[Cell("<b>", 1.5)]])], ["a/b.png"])
    assert "<b>" not in made
    assert "&lt;b&gt;" in made
    assert 'data-n="1.5"' in made
    assert not re.findall(r"https?:|//cdn|@import", made)
    assert re.findall(r'(?:src|href)="([^"]+)"', made) == ["a/b.png"]


def test_leaderboard_is_made_from_the_files_alone(tmp_path: Path) -> None:
    publish(setting("a"), tmp_path)
    publish(setting("b"), tmp_path)
    made = write_leaderboard(tmp_path)
    first = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {file.name for file in first} >= {"index.html", "leaderboard.md", "a.png", "b.png"}
    assert made.read_text().count("<table>") == 5
    assert (tmp_path / "leaderboard.md").read_text().count("| token_grpo |") == 2
    write_leaderboard(tmp_path)
    assert {file: file.read_bytes() for file in first} == first


def test_arms_without_a_run_are_open(tmp_path: Path) -> None:
    made = setting()
    publish(replace(made, runs=[run for run in made.runs if run.arm == "token_grpo"]), tmp_path)
    write_leaderboard(tmp_path)
    assert "| made | neighbor_grpo - token_grpo | pass@4 | 0 of 2 |" in (tmp_path / "leaderboard.md").read_text()
    publish(made, tmp_path)
    write_leaderboard(tmp_path)
    assert "| made | neighbor_grpo - token_grpo | pass@4 | 2 of 2 |" in (tmp_path / "leaderboard.md").read_text()


def test_the_choice_of_problems_is_shown_with_its_rule() -> None:
    found = levels_table(
        replace(setting(), levels={"demo:1-1": {"mean@1": 0.25, "pass@8": 0.5}, "demo": {"mean@1": 1}})
    )
    assert found is not None
    assert [cell.text for cell in found.rows[0]] == ["demo:1-1", "0.250", "0.500", "0.500", "keeps the rule", "chosen"]
    assert len(found.rows) == 1
    assert levels_table(replace(setting(), levels={"demo": {"mean@1": 0.25}})) is None


def test_markdown_has_a_cell_a_column() -> None:
    for table in (setting_table(setting()), levels_table(setting())):
        assert table is not None
        lines = markdown([table]).splitlines()
        assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
