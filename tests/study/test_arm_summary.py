from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from made_results import STUDY, answer_statistics, results, run

from ngrpo.study.arm_summary import figures, late, newly_solved, on_common_problems, pairs, summaries
from ngrpo.study.markdown_tables import tables
from ngrpo.study.plots import by_tokens, looks_of, progress, write_figure
from ngrpo.study.results import RateChoice, RateTrial, load, save, write
from ngrpo.study.stage_outputs import collect
from ngrpo.study.statistics import mean_of


def test_figures_are_means_over_problems() -> None:
    right = [0, 1, 3]
    found = figures(answer_statistics(right, [None, 1.0, 2.0]))
    assert found["mean@1"] == pytest.approx((0 + 1 / 4 + 3 / 4) / 3)
    for k in (1, 2, 4):
        draws = [[any(i < c for i in chosen) for chosen in combinations(range(4), k)] for c in right]
        assert found[f"pass@{k}"] == pytest.approx(sum(sum(one) / len(one) for one in draws) / 3)
    area = (found["pass@1"] + found["pass@2"]) / 4 + (found["pass@2"] + found["pass@4"]) / 4
    assert found["pass_area"] == pytest.approx(area)
    assert found["right_paths"] == 1.5
    assert "wrong_answers" not in found


def test_late_figures_are_of_the_last_iterations() -> None:
    found = late(run("token_grpo", 0, [1], [None]))
    assert found["late/policy/entropy"] == pytest.approx((1.0 + 0.5 + 0.25) / 3)
    assert found["tokens_per_s"] == 20.0


def test_equal_accuracy_compares_only_problems_that_both_can_show() -> None:
    own, other = answer_statistics([2, 3, 4], [1.5, 2.0, None]), answer_statistics([4, 0, 2], [1.0, None, 1.5])
    assert on_common_problems(own, other, "right_paths") == pytest.approx(0.5)
    assert on_common_problems(own, other, "wrong_answers") is None


def test_arms_are_compared_seed_by_seed() -> None:
    token, neighbor = summaries(results())
    assert (token.arm, neighbor.arm, token.seeds) == ("token_grpo", "neighbor_grpo", 2)
    assert token.differences is None
    assert token.figures["mean@1"] == mean_of([6 / 12, 6 / 12])
    assert neighbor.differences is not None
    assert neighbor.differences["mean@1"] == mean_of([9 / 12 - 6 / 12, 8 / 12 - 6 / 12])
    # Seed 0: 0.5, 1.0 and 1.0 more; seed 1: the first problem only, 1.0 more.
    assert neighbor.differences["right_paths"] == mean_of([2.5 / 3, 1.0])
    assert neighbor.differences["paths"] == mean_of([0.0, 0.0])
    assert "wrong_answers" not in neighbor.differences


def test_an_arm_may_be_compared_with_another_beside_the_reference() -> None:
    assert pairs(results()) == {}
    study = STUDY | {"arms": {"token_grpo": {"against": "neighbor_grpo"}, "neighbor_grpo": {"against": "soft_grpo"}}}
    made = replace(results(), study=study)
    (found,) = pairs(made).values()  # soft_grpo has no run to compare with
    _, neighbor = summaries(results())
    assert neighbor.differences is not None
    assert found["mean@1"].value == -neighbor.differences["mean@1"].value
    assert found["right_paths"].value == -neighbor.differences["right_paths"].value
    mean, area = neighbor.differences["mean@1"], neighbor.differences["pass_area"]
    (row,) = (line for line in tables(made).splitlines() if line.startswith("| token_grpo - neighbor_grpo | 2 |"))
    assert f"| {-mean.value:+.3f} [{-mean.high:+.3f}, {-mean.low:+.3f}] |" in row
    assert f"| {-area.value:+.3f} [{-area.high:+.3f}, {-area.low:+.3f}]" in row


def test_results_survive_the_file_and_give_the_same_tables(tmp_path: Path) -> None:
    save(results(), tmp_path / "made.json")
    again = load(tmp_path / "made.json")
    assert again == results()
    assert tables(again) == tables(results())


def test_tables_show_values_intervals_and_choices() -> None:
    shown = tables(results())
    lines = shown.splitlines()
    base, token = (
        next(line for line in lines if line.startswith(f"| {name} |")) for name in ("untrained", "token_grpo")
    )
    assert base.startswith("| untrained |  |  | 0.250 |")
    assert "| 2 | 0.001 | 0.500 [0.500, 0.500] |" in token
    difference = mean_of([0.25, 8 / 12 - 0.5])
    assert f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]" in shown
    assert "| neighbor_grpo | 0.100 | 0.9900 | 0.250 | 0.750 | 0.125 | 0.250 | 0.750 | 0.125 |" in lines
    assert {"| neighbor_grpo | 90 | 20 |", "| token_grpo | 200 | 20 |"} < set(lines)
    assert "| token_grpo | 0.5000 (chosen) | 0.2500 |" in lines
    assert {"| problems | Mean@1 | Pass@8 |", "| demo:1-1 | 0.250 | 0.500 |"} < set(lines)
    widths = [line.count("|") for line in lines if line.startswith("|")]
    blocks = [block.splitlines() for block in shown.strip().split("\n\n")[1:]]
    assert len(widths) == sum(map(len, blocks))
    assert all(len({line.count("|") for line in block}) == 1 for block in blocks)


def test_strengths_have_rows_of_their_own_and_one_of_them_is_chosen() -> None:
    tried = [RateTrial(rate, {"pass_area": rate * k}, f"algo.k=0.{k}") for rate in (0.25, 0.5) for k in (1, 2)]
    tuned = {**results().tuned, "soft_grpo": RateChoice(0.25, tried, "algo.k=0.2")}
    lines = tables(replace(results(), tuned=tuned)).splitlines()
    assert "| validation pass_area | rate 0.001 | rate 0.01 | rate 0.25 | rate 0.5 |" in lines
    assert "| token_grpo | 0.5000 (chosen) | 0.2500 |  |  |" in lines
    assert "| soft_grpo, k=0.1 |  |  | 0.2500 | 0.5000 |" in lines
    assert "| soft_grpo, k=0.2 |  |  | 0.5000 (chosen) | 1.0000 |" in lines


def test_levels_of_earlier_studies_are_read(tmp_path: Path) -> None:
    write(tmp_path / "levels.json", {"demo:1-1": 0.25})
    assert collect(STUDY, tmp_path).levels == {"demo:1-1": {"mean@1": 0.25}}


def test_only_differences_that_exclude_zero_are_marked() -> None:
    made = results()
    apart = [run("token_grpo", s, [1, 1, 1], [None] * 3) for s in (0, 1)]
    apart += [run("neighbor_grpo", s, [2, 2, 2], [None] * 3) for s in (0, 1)]
    shown = tables(type(made)(study=made.study, runs=apart))
    assert "+0.250 [+0.250, +0.250]*" in shown
    assert "]*" not in tables(type(made)(study=made.study, runs=made.runs[:2] + made.runs[3:]))


def test_figure_is_drawn_from_partial_results(tmp_path: Path) -> None:
    made = results()
    write_figure(made, tmp_path / "all.png")
    write_figure(type(made)(study=made.study, runs=made.runs[:1]), tmp_path / "one.png")
    assert (tmp_path / "all.png").stat().st_size > 20_000
    assert (tmp_path / "one.png").stat().st_size > 10_000


def test_arms_of_one_strategy_share_a_colour_and_those_of_one_algorithm_a_line() -> None:
    looks = looks_of(["token_grpo", "neighbor_no_gate_grpo", "token_gspo", "neighbor_gspo"])
    assert looks["token_grpo"].colour == looks["token_gspo"].colour
    assert looks["token_gspo"].line == looks["neighbor_gspo"].line != looks["token_grpo"].line
    assert len({(look.colour, look.line) for look in looks.values()}) == 4


def test_each_of_many_algorithms_has_a_look_of_its_own() -> None:
    arms = [f"token_{name}" for name in ("grpo", "passk", "maxrl", "forking", "tree")] + ["neighbor_grpo"]
    assert len(set(looks_of(arms).values())) == len(arms)


def test_runs_of_equal_tokens_are_drawn_over_them() -> None:
    runs = [run("token_grpo", seed, [1], [None]) for seed in (0, 1)]
    assert not by_tokens(runs)
    assert progress(runs, 3) == [1, 2, 3]
    counted = [
        replace(
            one, settings=["trainer.max_generated_tokens=9"], curves={**one.curves, "rollout/generated_tokens": tokens}
        )
        for one, tokens in zip(runs, ([4, 8, 12], [6, 10]), strict=True)
    ]
    assert by_tokens(counted)
    assert progress(counted, 2) == [5, 9]
    assert not by_tokens([counted[0], runs[1]])


def test_newly_solved_are_the_problems_that_were_never_solved_before() -> None:
    base = answer_statistics([0, 0, 2, 4], [None] * 4)
    assert newly_solved(answer_statistics([1, 0, 0, 4], [None] * 4), base) == 0.5
    assert newly_solved(base, answer_statistics([1, 1, 1, 1], [None] * 4)) is None
