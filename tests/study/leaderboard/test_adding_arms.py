from dataclasses import replace
from pathlib import Path

import pytest
from made_results import run
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.study.definition import StudyConfig, as_json, load_study
from ngrpo.study.leaderboard.adding import add_arm, check_setting, with_arm
from ngrpo.study.leaderboard.files import publish, read_setting
from ngrpo.study.results import RESULT, RateChoice, RateTrial, Results, RunResult, write
from ngrpo.study.stage_outputs import TUNED


@pytest.fixture
def study() -> StudyConfig:
    return load_study(ROOT / "conf", "quick", [])


def stored(study: StudyConfig) -> Results:
    tuned = {arm: RateChoice(1e-3, [RateTrial(1e-3, {"pass_area": 0.5})]) for arm in study.arms}
    return Results(study=as_json(study), tuned=tuned, runs=[run(arm, 0, [1, 2], [None, None]) for arm in study.arms])


def finished(arm: str, out: Path) -> RunResult:
    made = run(arm, 0, [3, 3], [None, None])
    write(out / "runs" / arm / "0.001" / "seed-0" / RESULT, made)
    write(out / TUNED, {arm: RateChoice(1e-3, [RateTrial(1e-3, {"pass_area": 0.5})])})
    return made


def test_a_new_arm_stands_beside_those_that_are_there(study: StudyConfig, tmp_path: Path) -> None:
    board, out = tmp_path / "board", tmp_path / "out"
    publish(stored(study), board)
    before = {file.name: file.read_bytes() for file in (board / "quick").iterdir()}
    new = with_arm(study, "min_p_grpo", ["exploration=min_p", "algo=grpo"], 1, [])
    assert list(new.arms) == ["min_p_grpo"]
    check_setting(new, board)
    made = finished("min_p_grpo", out)
    file = add_arm(new, out, board)
    assert file == board / "quick" / "min_p_grpo.json"
    again = read_setting(board / "quick")
    assert again.of_arm("min_p_grpo") == [made]
    assert again.study["arms"]["min_p_grpo"]["overrides"] == ["exploration=min_p", "algo=grpo"]
    assert again.study["reference"] == "token_grpo"
    assert {name: (board / "quick" / name).read_bytes() for name in before} == before


def test_a_setting_with_another_budget_is_not_compared(study: StudyConfig, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has no setting to add an arm to"):
        check_setting(study, tmp_path)
    publish(stored(study), tmp_path)
    with pytest.raises(SettingError, match=r"iterations=9 is not the 3 of the leaderboard's setting quick"):
        check_setting(replace(study, iterations=9), tmp_path)
    with pytest.raises(SettingError, match=r"tune\.rates=\[0\.5\] is not the \[0\.0001, 0\.0003\] of the"):
        check_setting(replace(study, tune=replace(study.tune, rates=[0.5])), tmp_path)


def test_an_arm_is_what_its_stored_runs_were(study: StudyConfig, tmp_path: Path) -> None:
    (first, *_) = study.arms
    made = stored(study)
    publish(replace(made, runs=[run for run in made.runs if run.arm == first]), tmp_path)
    waiting = {arm: replace(one, overrides=["algo=gspo"]) for arm, one in study.arms.items() if arm != first}
    check_setting(replace(study, arms={first: study.arms[first], **waiting}), tmp_path)
    changed = with_arm(replace(study, arms={}), first, ["algo=gspo"], 1, [])
    with pytest.raises(SettingError, match=rf"arms\.{first}\.overrides=\[\"algo=gspo\"\] is not the"):
        check_setting(changed, tmp_path)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("token_grpo", ["algo=grpo"], "is an arm of study quick already"),
        ("../x", ["algo=grpo"], "cannot name a file"),
        ("setting", ["algo=grpo"], "cannot name a file"),
        ("", ["algo=grpo"], "cannot name a file"),
        ("min_p_grpo", [], "has no settings"),
    ],
)
def test_names_that_cannot_be_are_refused(study: StudyConfig, name: str, overrides: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        with_arm(study, name, overrides, 1, [])
