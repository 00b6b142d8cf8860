"""The leaderboard's page and tables are what its files make, and its page says so where there are none."""

import json
import re
import shutil
from itertools import islice
from pathlib import Path

from places import ROOT
from prose import PAGES

from ngrpo.data.countdown.generator import NUMBERS
from ngrpo.data.sources import open_source
from ngrpo.study.arm_summary import figures, pairs, summaries
from ngrpo.study.definition import load_study
from ngrpo.study.difficulty import nearest
from ngrpo.study.leaderboard.files import read_setting
from ngrpo.study.leaderboard.page import write_leaderboard
from ngrpo.study.primary_family import comparisons
from ngrpo.study.room import Room
from ngrpo.utils.numbers import fixed, fixed_off_zero

RESULTS = ROOT / "docs" / "results"
MADE = ("index.html", "leaderboard.md")
_ORDER = (
    "token_grpo", "argmax_gate_grpo", "neighbor_grpo", "token_passk", "token_maxrl", "token_forking", "token_tree",
)  # fmt: skip


def test_different_puzzles_are_counted_as_quoted() -> None:
    study = read_setting(RESULTS / "countdown").study["test"]
    rows = list(islice(open_source(study["path"]).rows(), study["problems"]))
    numbers = [tuple(sorted(row.columns[NUMBERS])) for row in rows]
    puzzles = {(drawn, row.answer) for drawn, row in zip(numbers, rows, strict=True)}
    text = " ".join(PAGES["docs/leaderboard.md"].split())
    expected = f"the {len(rows)} test problems are {len(puzzles)} different puzzles, from {len(set(numbers))} sets of"
    assert expected in text


def test_the_rules_figures_are_quoted_and_keep_it() -> None:
    measured = {name: read_setting(RESULTS / name).levels for name in ("countdown", "word_problems")}
    measured["smollm2_long"] = json.loads((ROOT / "docs/benchmarks/smollm2_long_levels_h200.json").read_text())[
        "levels"
    ]
    rows = [line for line in PAGES["docs/leaderboard.md"].splitlines() if line.startswith("|")]
    for name, levels in measured.items():
        rule = load_study(ROOT / "conf", name, []).levels
        rooms = {path: Room.of_metrics(levels[path]) for path in rule.paths}
        assert nearest(rooms, rule) == rule.chosen
        room = rooms[rule.chosen]
        assert room is not None
        cells = (name, rule.chosen, fixed(room.mean), fixed(room.solved), fixed(1 - room.solved))
        start = "| `{}` | `{}` | {} | {} | {} | ".format(*cells)
        (row,) = (line for line in rows if line.startswith(start))
        beside, unsolved = re.fullmatch(r"`(.*)`: (.*) unsolved", row.removeprefix(start).removesuffix(" |")).groups()
        other = rooms[beside]
        assert fixed(1 - other.solved) == unsolved
        assert other.shortfalls(rule) == ["fewer than 0.200 are unsolved"]


def test_controls_differ_as_quoted() -> None:
    found = pairs(read_setting(RESULTS / "countdown"))["neighbor_grpo", "argmax_gate_grpo"]
    passes = found["pass@64"]
    quoted = f"{fixed(passes.value, signed=True)} [{fixed(passes.low, signed=True)}, {fixed(passes.high, signed=True)}]"
    assert f"no figure differs between them, in Pass@64 by {quoted}" in PAGES["docs/leaderboard.md"]
    shown = ("mean@1", "pass@8", "pass@64", "pass_area", "newly_solved", "solutions", "length")
    assert all(found[name].low < 0 < found[name].high for name in shown)


def test_claims_are_judged_by_the_corrected_comparisons() -> None:
    rows = [line for line in PAGES["docs/leaderboard.md"].splitlines() if line.startswith("|")]
    settings = [read_setting(RESULTS / name) for name in ("countdown", "word_problems")]
    judged = comparisons(settings)
    for one in judged:
        (row,) = (line for line in rows if f"`{one.arm}` - `{one.against}`" in line)
        assert one.difference is not None
        assert one.adjusted_p is not None
        shown = fixed_off_zero if one.difference.low * one.difference.high > 0 else fixed
        low, high = (shown(end, signed=True) for end in (one.difference.low, one.difference.high))
        quoted = f"{one.verdict}: {fixed(one.difference.value, signed=True)} [{low}, {high}], p {fixed(one.adjusted_p)}"
        assert row.split("|")[3 + (one.setting == "word_problems")].strip() == quoted
    better = {(one.setting, one.arm) for one in judged if one.verdict == "higher"}  # as the README says too
    assert better == {("countdown", "token_passk"), ("word_problems", "token_forking")}


def test_no_arm_has_the_untrained_models_pass_at_64() -> None:
    for results in (read_setting(RESULTS / name) for name in ("countdown", "word_problems")):
        assert results.base is not None
        untrained = figures(results.base)["pass@64"]
        assert all(arm.figures["pass@64"].value < untrained for arm in summaries(results))
        assert fixed(untrained) in PAGES["docs/leaderboard.md"]


def test_quoted_rollouts_are_of_the_stored_runs() -> None:
    stored = json.loads((ROOT / "docs/benchmarks/leaderboard_rollouts.json").read_text())["settings"]
    text = PAGES["docs/leaderboard.md"]
    for setting, looked_at in stored.items():
        results = read_setting(RESULTS / setting)
        assert results.base is not None
        of_seed = {run.arm: run.test.right for run in results.runs if run.seed == looked_at["seed"]}
        runs = {"untrained": results.base.right, **{arm: of_seed[arm] for arm in _ORDER}}
        for place, problem in looked_at["problems"].items():
            rights = [problem["arms"][arm]["right"] for arm in ("untrained", *_ORDER)]
            # Sampled again on a CPU, with the keys of the evaluation on a GPU: one response turned out otherwise.
            assert max(abs(runs[arm][int(place)] - own) for arm, own in zip(runs, rights, strict=True)) <= 1
            assert f"| {setting} {place} | {' | '.join(map(str, rights))} |" in text
    shown = (("countdown", "175"), ("word_problems", "171"), ("word_problems", "118"))
    for setting, place in shown:
        problem = stored[setting]["problems"][place]
        assert problem["prompt"] in text
        for arm in ("untrained", *_ORDER):
            (row,) = (line for line in text.splitlines() if line.startswith(f"| `{arm}` | `"))
            response, right, _ = problem["arms"][arm]["responses"][0]
            assert f"`{' '.join(response.replace('</think>', '').split())}` {'right' if right else 'wrong'}" in row


def test_marked_intervals_are_seen_to_exclude_zero() -> None:
    marked = re.findall(r"\[([^ ]+), ([^ ]+)\]\*", (RESULTS / "leaderboard.md").read_text())
    assert marked
    assert all(float(low) * float(high) > 0 for low, high in marked)


def test_tables_are_made_again_from_the_files(tmp_path: Path) -> None:
    settings = [file.parent.name for file in RESULTS.glob("*/setting.json")]
    assert ("No setting is filled in yet" in PAGES["docs/leaderboard.md"]) == (not settings)
    if not settings:
        assert not any((RESULTS / name).exists() for name in MADE)
        return
    for setting in settings:
        shutil.copytree(RESULTS / setting, tmp_path / setting)
    write_leaderboard(tmp_path)
    for name in MADE:
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text()
