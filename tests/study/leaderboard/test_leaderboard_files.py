from dataclasses import replace
from pathlib import Path

import pytest
from made_leaderboard import setting

from ngrpo.errors import SettingError
from ngrpo.study.arm_summary import summaries
from ngrpo.study.leaderboard.files import publish, read_settings
from ngrpo.study.results import read, write


def test_every_arm_has_a_file_from_which_the_same_tables_are_made(tmp_path: Path) -> None:
    files = publish(setting(), tmp_path)
    assert {file.name for file in files} == {"token_grpo.json", "neighbor_grpo.json"}
    (again,) = read_settings(tmp_path)
    assert again.study == setting().study
    assert {one.arm: one for one in summaries(again)} == {one.arm: one for one in summaries(setting())}
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    publish(again, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == before


def test_a_file_says_what_the_runs_were_and_took(tmp_path: Path) -> None:
    publish(setting(), tmp_path)
    entry = read(tmp_path / "made" / "neighbor_grpo.json")
    assert entry["seeds"] == [0, 1]
    assert (entry["commit"], entry["hardware"], entry["versions"]) == (["abc"], ["cpu"], {"torch": "2"})
    assert (entry["tokens"], entry["seconds"], entry["settings"]) == (2001, 2.0, ["a=1"])
    summary = next(one for one in summaries(setting()) if one.arm == "neighbor_grpo")
    mean = summary.figures["newly_solved"]
    assert entry["figures"]["newly_solved"] == [mean.value, mean.low, mean.high, 2]
    assert mean.value == 1.0


def test_a_single_seed_is_written_without_bounds(tmp_path: Path) -> None:
    made = setting()
    publish(replace(made, runs=[run for run in made.runs if run.seed == 0]), tmp_path)
    assert "NaN" not in (tmp_path / "made" / "token_grpo.json").read_text()
    assert read(tmp_path / "made" / "token_grpo.json")["figures"]["mean@1"][1:] == [None, None, 1]


def test_folders_without_a_leaderboard_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no setting of a leaderboard"):
        read_settings(tmp_path)
    publish(setting(), tmp_path)
    (tmp_path / "made" / "other.json").write_text("{}")
    with pytest.raises(SettingError, match=r"other\.json holds no arm of a leaderboard \(KeyError: 'runs'\)"):
        read_settings(tmp_path)


def test_an_arm_counts_once(tmp_path: Path) -> None:
    """A copy of its file, or a seed twice in it, would make its intervals too narrow."""
    publish(setting(), tmp_path)
    file = tmp_path / "made" / "neighbor_grpo.json"
    copy = file.with_name("copy.json")
    copy.write_bytes(file.read_bytes())
    with pytest.raises(SettingError, match=r"copy\.json holds runs of neighbor_grpo, which would count twice"):
        read_settings(tmp_path)
    copy.unlink()
    entry = read(file)
    write(file, entry | {"runs": [*entry["runs"], entry["runs"][0]]})
    with pytest.raises(SettingError, match=r"neighbor_grpo\.json holds seed 0 twice"):
        read_settings(tmp_path)


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ("setting", r"made holds arms and no setting\.json"),
        ("token_grpo", "made compares with token_grpo, of which there is no token_grpo"),
        ("neighbor_grpo", "made compares with neighbor_grpo, of which there is no neighbor_grpo"),
    ],
)
def test_a_lost_file_of_a_setting_is_named(tmp_path: Path, lost: str, sentence: str) -> None:
    publish(setting(), tmp_path)
    (tmp_path / "made" / f"{lost}.json").unlink()
    with pytest.raises(SettingError, match=sentence):
        read_settings(tmp_path)
