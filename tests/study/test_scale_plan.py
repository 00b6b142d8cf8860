import json
from pathlib import Path

import pytest
from forked import succeed
from places import ROOT

from ngrpo.entrypoints.planned_run import read_run
from ngrpo.errors import SettingError
from ngrpo.planning.cards import CARDS
from ngrpo.study.definition import StudyConfig, load_study, only
from ngrpo.study.scale_plan import plan_arms, plan_text, write_jobs

CARD = CARDS[0]
SHAPE = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 1536, "intermediate_size": 8960,
    "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> StudyConfig:
    """The papers' setting, with a folder of the same shape in place of the model on the hub."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SHAPE))
    return load_study(ROOT / "conf", "r1_distill_1_5b", [f"base_model={tmp_path / 'model'}"])


def test_hours_follow_budget_seeds_and_trials(study: StudyConfig) -> None:
    study = only(study, ["token_grpo", "token_passk"])
    token, passk = plan_arms(ROOT / "conf", study, CARD, read_run)
    assert (token.trials, passk.trials, token.seeds, token.devices) == (2, 4, 10, 1)
    assert 30 < token.peak_gib < 139
    assert token.fits
    # 300 M tokens in iterations of 64 x 8 x 8,192, and trials of 60 M; a run is no cheaper than its decode steps.
    decode = 72 * 8192 * 2 * CARD.decode_step_s / 3600
    assert token.hours > 10 * decode
    assert passk.hours - token.hours == pytest.approx(2 * (token.hours - _without_trials(study)) / 2, rel=1e-6)


def _without_trials(study: StudyConfig) -> float:
    study.tune.rates = [1e-6]
    one = plan_arms(ROOT / "conf", only(study, ["token_grpo"]), CARD, read_run)[0].hours
    study.tune.rates = [1e-6, 3e-6]
    two = plan_arms(ROOT / "conf", only(study, ["token_grpo"]), CARD, read_run)[0].hours
    return two - 2 * (two - one)


def test_text_sums_and_prices(study: StudyConfig) -> None:
    plans = plan_arms(ROOT / "conf", only(study, ["token_grpo"]), CARD, read_run)
    text = plan_text(study, plans, CARD, 2.0)
    assert f"{plans[0].hours:,.0f} GPU hours, {2 * plans[0].hours:,.0f} at 2 an hour" in text
    assert "nothing of it was run" in text
    assert " at " not in plan_text(study, plans, CARD, None).splitlines()[0]


def test_each_arm_has_a_job_that_names_it(study: StudyConfig, tmp_path: Path) -> None:
    plans = plan_arms(ROOT / "conf", only(study, ["token_grpo", "neighbor_grpo"]), CARD, read_run)
    options = ["--study", "r1_distill_1_5b", "--config-dir", str(tmp_path), "iterations=7"]
    files = write_jobs(study, plans, tmp_path / "out", options)
    assert [file.name for file in files] == ["token_grpo.sbatch", "neighbor_grpo.sbatch"]
    text = files[1].read_text()
    assert "#SBATCH --requeue" in text
    words = [*options, "--only", "neighbor_grpo", "--out", f"{tmp_path}/out/neighbor_grpo"]
    for stage in ("base", "tune", "run", "publish"):
        assert f"ngrpo study {stage} {' '.join(words)}\n" in text


def test_an_arm_that_is_none_cannot_be_planned_alone(study: StudyConfig) -> None:
    with pytest.raises(SettingError, match="--only soft_grpo is no arm of study r1_distill_1_5b"):
        only(study, ["soft_grpo"])
    assert only(study, []) is study


def test_the_command_prints_the_plan_and_refuses_other_cards(tmp_path: Path) -> None:
    words = ["plan", "--setting", "quick", "--only", "token_grpo", "--out", str(tmp_path), "iterations=7"]
    printed = succeed("study.py", *words, "--card", "H100")
    assert "| token_grpo | 2 | 2 | 1 |" in printed
    # A job makes what was planned, not what the file says.
    job = (tmp_path / "slurm" / "token_grpo.sbatch").read_text()
    assert job.count(" --study quick iterations=7 --only token_grpo --out ") == 4
    with pytest.raises(AssertionError, match="--card A100 was not measured"):
        succeed("study.py", *words, "--card", "A100")
