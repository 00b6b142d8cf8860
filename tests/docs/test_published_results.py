"""The leaderboard's page and tables are what its files make, and its page says so where there are none."""

import re
import shutil
from itertools import islice
from pathlib import Path

from places import ROOT
from prose import PAGES

from ngrpo.data.countdown.generator import NUMBERS
from ngrpo.data.sources import open_source
from ngrpo.study.arm_summary import pairs
from ngrpo.study.leaderboard.files import read_setting
from ngrpo.study.leaderboard.page import write_leaderboard
from ngrpo.utils.numbers import fixed

RESULTS = ROOT / "docs" / "results"
MADE = ("index.html", "leaderboard.md")


def test_different_puzzles_are_counted_as_quoted() -> None:
    study = read_setting(RESULTS / "countdown").study["test"]
    rows = list(islice(open_source(study["path"]).rows(), study["problems"]))
    numbers = [tuple(sorted(row.columns[NUMBERS])) for row in rows]
    puzzles = {(drawn, row.answer) for drawn, row in zip(numbers, rows, strict=True)}
    text = " ".join(PAGES["docs/leaderboard.md"].split())
    expected = f"the {len(rows)} test problems are {len(puzzles)} different puzzles, from {len(set(numbers))} sets of"
    assert expected in text


def test_controls_differ_as_quoted() -> None:
    found = pairs(read_setting(RESULTS / "countdown"))["neighbor_grpo", "argmax_gate_grpo"]
    passes = found["pass@64"]
    quoted = f"{fixed(passes.value, signed=True)} [{fixed(passes.low, signed=True)}, {fixed(passes.high, signed=True)}]"
    assert f"no figure differs between them, in Pass@64 by {quoted}" in PAGES["docs/leaderboard.md"]
    shown = ("mean@1", "pass@8", "pass@64", "pass_area", "newly_solved", "solutions", "length")
    assert all(found[name].low < 0 < found[name].high for name in shown)


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
