"""A study goes on with the settings that it was started with."""

from pathlib import Path

import pytest
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.study.definition import ArmConfig, StudyConfig, load_study
from ngrpo.study.fingerprint import FINGERPRINT, check_or_write_fingerprint
from ngrpo.study.results import write

CONF = ROOT / "conf"


def quick(*overrides: str) -> StudyConfig:
    return load_study(CONF, "quick", list(overrides))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("iterations=4", r"iterations=4 is not the 3 that the study in .* was started with"),
        ("levels.chosen=demo:1-3", r"levels.chosen=.*demo:1-3"),
        ("tune.iterations=9", r"tune\.iterations=9 is not the 2 that"),
        ("arms.token_grpo.overrides=['exploration=gumbel']", r"arms\.token_grpo\.overrides="),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, setting: str, said: str):
    check_or_write_fingerprint(quick(), tmp_path)
    with pytest.raises(SettingError, match=said):
        check_or_write_fingerprint(quick(setting), tmp_path)
    check_or_write_fingerprint(quick(), tmp_path)


@pytest.mark.parametrize(
    "setting",
    [
        "arms.token_grpo.seeds=5",
        "arms.neighbor_grpo.against=token_grpo",
        "keep_files=false",
        "tune.rates=[1e-5]",
        "levels.high=0.5",
        "reference=neighbor_grpo",
    ],
)
def test_what_finished_runs_do_not_depend_on_may_change(tmp_path: Path, setting: str):
    check_or_write_fingerprint(quick(), tmp_path)
    check_or_write_fingerprint(quick(setting), tmp_path)


def with_arm(exploration: str) -> StudyConfig:
    study = quick()
    study.arms["more"] = ArmConfig([f"exploration={exploration}"], 1)
    return study


def test_arms_may_come_and_go_but_not_change(tmp_path: Path):
    for study in (quick(), with_arm("soft"), quick(), with_arm("soft")):
        check_or_write_fingerprint(study, tmp_path)
    with pytest.raises(SettingError, match=r"arms\.more\.overrides"):
        check_or_write_fingerprint(with_arm("gumbel"), tmp_path)


def test_a_study_that_named_the_script_that_makes_its_model_continues(tmp_path: Path):
    maker = "make_model=[scripts/make_demo_model.py,--size,small]"
    assert quick(maker).make_model == ["ngrpo.entrypoints.demo_model_command", "--size", "small"]
    write(tmp_path / FINGERPRINT, {"make_model": ["scripts/make_demo_model.py", "--size", "small"]})
    check_or_write_fingerprint(quick(maker), tmp_path)
    with pytest.raises(SettingError, match="make_model="):
        check_or_write_fingerprint(quick(maker.replace("small", "large")), tmp_path)
