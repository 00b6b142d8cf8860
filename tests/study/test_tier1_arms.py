"""Every arm of the leaderboard, at its first strength, makes an iteration in each setting."""

import json
from pathlib import Path

import pytest
from forked import succeed
from places import ROOT

from ngrpo.study.definition import load_study
from ngrpo.study.study_jobs import StudyJobs
from ngrpo.training.run_length import RunLength

ARMS = load_study(ROOT / "conf", "countdown", []).arms
SMALL = [
    "algo.prompts_per_batch=2", "rollout.group_size=8", "rollout.max_new_tokens=32", "trainer.accelerator=cpu",
    "model.path=demo",
]  # fmt: skip


@pytest.mark.parametrize("setting", ["countdown", pytest.param("word_problems", marks=pytest.mark.slow)])
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_makes_an_iteration(setting: str, arm: str, tmp_path: Path) -> None:
    study = load_study(ROOT / "conf", setting, [])
    strength = next(iter(study.arms[arm].strengths), None)
    settings = StudyJobs(study, tmp_path).train_settings(arm, 0, 1e-4, RunLength(9, 10), strength)
    succeed("train.py", *settings, *SMALL, f"hydra.run.dir={tmp_path / 'run'}")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["iterations"] == 1
    assert summary["tokens_generated"] >= 10


@pytest.mark.parametrize("setting", ["countdown", "word_problems", "r1_distill_1_5b"])
def test_the_primary_comparisons_are_of_planned_arms(setting: str) -> None:
    study = load_study(ROOT / "conf", setting, [])
    assert study.primary is not None
    assert study.primary.family <= 8
    for one in study.primary.comparisons:
        assert study.arms[one.arm].seeds == study.arms[one.against].seeds == 10
        assert one.metric == f"pass@{study.test.samples}"
    assert study.tune.validation.path != study.test.path


def test_the_third_setting_has_the_same_arms_and_nothing_primary() -> None:
    third = load_study(ROOT / "conf", "smollm2_long", [])
    assert {name: arm.overrides for name, arm in third.arms.items()} == {n: arm.overrides for n, arm in ARMS.items()}
    assert {name: arm.strengths for name, arm in third.arms.items()} == {n: arm.strengths for n, arm in ARMS.items()}
    assert {arm.seeds for arm in third.arms.values()} == {5}
    assert third.primary is not None
    assert third.primary.comparisons == []
    assert third.tune.validation.path != third.test.path
