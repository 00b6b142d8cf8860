from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.entrypoints.study_command import main
from ngrpo.errors import SettingError
from ngrpo.study.definition import as_json, load_study, only
from ngrpo.study.leaderboard.files import publish, read_setting
from ngrpo.study.leaderboard.restoring import MODEL, restore
from ngrpo.study.results import RateChoice, RateTrial, write
from ngrpo.study.stage_outputs import TUNED, collect, read_rate_choices
from ngrpo.study.study_jobs import StudyJobs

BOARD = ROOT / "docs" / "results"


def test_a_study_goes_on_from_its_published_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["study", "restore", "--study", "countdown", "--leaderboard", str(BOARD)])
    main()
    study, out = load_study(ROOT / "conf", "countdown", []), tmp_path / "outputs" / "study" / "countdown"
    stored = read_setting(BOARD / "countdown")
    assert f"{len(stored.runs)} runs of setting countdown" in capsys.readouterr().out
    assert (tmp_path / study.base_model / "model.safetensors").exists()
    jobs = StudyJobs(study, out)
    assert jobs.base_job() == jobs.model_job() == jobs.tune_jobs() == []
    assert jobs.rate_choices() == read_rate_choices(out) == stored.tuned
    planned = sum(arm.seeds for arm in study.arms.values())
    assert len(jobs.run_jobs(stored.tuned)) == planned - len(stored.runs)
    # What is published of it is what was there.
    again = publish(collect(as_json(study), out), tmp_path / "board")
    for file in again:
        assert file.read_bytes() == (BOARD / "countdown" / file.name).read_bytes()
    assert {file.stem for file in again} == set(study.arms)


def test_rates_of_arms_that_are_not_restored_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study, out = load_study(ROOT / "conf", "countdown", []), tmp_path / "out"
    own = RateChoice(1e-4, [RateTrial(1e-4, {"pass_area": 0.5})])
    write(out / TUNED, {"own_grpo": own})
    for arm in ("token_grpo", "token_tree"):
        restore(only(study, [arm]), out, BOARD)
    stored = read_setting(BOARD / "countdown").tuned
    kept = {"own_grpo": own, "token_grpo": stored["token_grpo"], "token_tree": stored["token_tree"]}
    assert read_rate_choices(out) == kept


def test_a_method_is_added_to_the_model_of_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["add", "--study", "countdown", "--arm", "min_p_grpo", "--with", "exploration=min_p", "--limit-seconds=0"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["study", *words, "--leaderboard", str(BOARD)])
    main()
    study = load_study(ROOT / "conf", "countdown", [])
    made, stored = tmp_path / study.base_model, BOARD / "countdown" / MODEL
    assert {file.name: file.read_bytes() for file in made.iterdir()} == {
        file.name: file.read_bytes() for file in stored.iterdir()
    }
    (made / "model.safetensors").write_bytes(b"made on another machine")
    for name in ("add", "restore"):
        monkeypatch.setattr("sys.argv", ["study", name, *words[1:], "--leaderboard", str(BOARD)])
        with pytest.raises(SettingError, match="is not the model that the runs of setting countdown began with"):
            main()


def test_a_study_of_other_settings_is_not_mixed_with_it(tmp_path: Path) -> None:
    study = load_study(ROOT / "conf", "countdown", [])
    with pytest.raises(SettingError, match="generated_tokens=5 is not the 600000 of the leaderboard's setting"):
        restore(replace(study, generated_tokens=5), tmp_path, BOARD)
    with pytest.raises(SettingError, match="has no setting"):
        restore(study, tmp_path, tmp_path)
    assert not any(tmp_path.iterdir())
