"""What `study publish` writes: the arms of a folder beside those that are there, and of no other study or settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_results import answer_statistics, run
from places import ROOT

from ngrpo.entrypoints.study_command import main
from ngrpo.errors import SettingError
from ngrpo.study.definition import load_study
from ngrpo.study.fingerprint import check_or_write_fingerprint
from ngrpo.study.leaderboard import commands
from ngrpo.study.leaderboard.files import read_setting
from ngrpo.study.results import RESULT, RateChoice, RateTrial, read, write
from ngrpo.study.stage_outputs import TUNED
from ngrpo.utils.lock import FolderInUse, lock


def made_by_a_job(arm: str, out: Path, overrides: tuple[str, ...] = ()) -> Path:
    check_or_write_fingerprint(load_study(ROOT / "conf", "countdown", list(overrides)), out)
    write(out / TUNED, {arm: RateChoice(1e-3, [RateTrial(1e-3, {"pass_area": 0.5})])})
    write(out / "runs" / arm / "0.001" / "seed-0" / RESULT, run(arm, 0, [1, 2, 4], [None] * 3))
    return out


def publish(board: Path, out: Path, *words: str, study: str = "countdown") -> None:
    command = ["study", "publish", "--study", study, "--out", str(out), "--leaderboard", str(board), *words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        main()


def test_jobs_publish_an_arm_each(tmp_path: Path) -> None:
    board, arms = tmp_path / "board", ("token_passk", "token_grpo")
    base = answer_statistics([0, 1, 2], [None] * 3)
    for arm in arms:
        out = made_by_a_job(arm, tmp_path / arm)
        if arm == "token_passk":
            write(out / "base" / RESULT, base)
        publish(board, out, "--only", arm)
    stored = read_setting(board / "countdown")
    assert {one.arm for one in stored.runs} == set(arms)
    assert set(stored.study["arms"]) == set(load_study(ROOT / "conf", "countdown", []).arms)
    assert stored.base == base
    table = (board / "leaderboard.md").read_text()
    assert "| token_passk - token_grpo | pass@64 | 0 of 10 |" in table  # these runs have four samples
    # An earlier arm's file is made again, now that there is a reference to subtract.
    assert read(board / "countdown" / "token_passk.json")["differences"]["mean@1"] == [0.0, None, None, 1]


def test_jobs_that_end_together_publish_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another job has made anew meanwhile would be written over by what was read before."""
    board, held = tmp_path / "board", list[str]()

    def while_held(name: str) -> Callable[..., Any]:
        called = getattr(commands, name)

        def call(*arguments: Any) -> Any:
            with pytest.raises(FolderInUse):
                lock(board)
            held.append(name)
            return called(*arguments)

        return call

    for name in ("check_setting", "publish", "write_leaderboard"):
        monkeypatch.setattr(commands, name, while_held(name))
    for arm in ("token_passk", "token_grpo"):
        publish(board, made_by_a_job(arm, tmp_path / arm), "--only", arm)
    assert held == ["publish", "write_leaderboard", "check_setting", "publish", "write_leaderboard"]
    lock(board).close()


def test_an_arm_alone_is_published_of_a_folder_with_others(tmp_path: Path) -> None:
    out = made_by_a_job("token_grpo", tmp_path / "out")
    made_by_a_job("token_tree", out)
    publish(tmp_path / "board", out, "--only", "token_tree")
    assert {one.arm for one in read_setting(tmp_path / "board" / "countdown").runs} == {"token_tree"}


@pytest.mark.parametrize("changed", [{"of_a_later_version": 1}, {"test": {}}, {"test": None}])
def test_files_of_runs_that_cannot_be_read_are_named(changed: dict[str, object], tmp_path: Path) -> None:
    out = made_by_a_job("token_grpo", tmp_path / "out")
    (file,) = out.rglob(f"seed-0/{RESULT}")
    write(file, read(file) | changed)
    with pytest.raises(SettingError, match=f"{file} holds no run of a study .*; remove it, and the study makes it"):
        publish(tmp_path / "board", out)
    assert not (tmp_path / "board").exists()


def test_runs_of_other_settings_are_not_published(tmp_path: Path) -> None:
    out, board = made_by_a_job("token_grpo", tmp_path / "out"), tmp_path / "board"
    with pytest.raises(SettingError, match="generated_tokens=5 is not the 600000 that the study in"):
        publish(board, out, "generated_tokens=5")
    with pytest.raises(SettingError, match="is not the .* that the study in"):
        publish(board, out, study="word_problems")
    assert not board.exists()
    publish(board, out)
    before = {file: file.read_bytes() for file in board.rglob("*.json")}
    other = made_by_a_job("token_tree", tmp_path / "other", ("generated_tokens=5",))
    with pytest.raises(SettingError, match="generated_tokens=5 is not the 600000 of the leaderboard's setting"):
        publish(board, other, "generated_tokens=5")
    assert {file: file.read_bytes() for file in board.rglob("*.json")} == before
