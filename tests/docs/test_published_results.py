"""The leaderboard's page and tables are what its files make, and its page says so where there are none."""

import shutil
from pathlib import Path

from places import ROOT
from prose import PAGES

from ngrpo.study.leaderboard.page import write_leaderboard

RESULTS = ROOT / "docs" / "results"
MADE = ("index.html", "leaderboard.md")


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
