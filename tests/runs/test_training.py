"""Whole runs of the embedded demo: what they leave behind, and what decides their course."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from places import ROOT
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from ngrpo.config.permissions import typed
from ngrpo.config.schema import register
from ngrpo.entrypoints.train import train
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.run_store import RunStore
from ngrpo.utils.sanitize import markdown_literal

CONF = ROOT / "conf"
MIXING = ("exploration=neighbor", "algo=gspo")
PLAIN = ("exploration=token", "algo=grpo")
SMALL = (
    "trainer.iterations=1", "data.eval_problems=2", "callbacks.evaluation.evaluator.samples=1", "reward.workers=1",
)  # fmt: skip
OPTIONAL = (
    "rollout_metrics", "exploration_monitor", "memory", "evaluation", "rollout_report", "progress", "export",
    "summary", "checkpoint", "random_state", "stopping", "collapse_warnings", "run_record", "histograms", "model_check",
    "mismatch_limit", "pass_at_k_figure", "run_settings", "health", "engine_check",
)  # fmt: skip

ALWAYS = {
    "train/reward", "train/pass@1", "train/pass@2", "train/pass@4", "train/mean@1", "train/zero_signal",
    "train/distinct_answers", "rollout/generated_tokens",
    "policy/entropy", "policy/kl", "policy/clip_fraction", "policy/ratio", "policy/loss",
    "policy/grad_norm", "rollout/length_mean", "rollout/length_max", "rollout/truncated", "rollout/tokens_per_s",
    "rollout/tokens_per_response", "rollout/given_mean", "rollout/branch_depth",
    "rollout/mismatch_mean", "rollout/mismatch_max", "memory/peak_gib", "time/generate_s", "time/reward_s",
    "time/score_s", "time/update_s", "reward/correctness",
}  # fmt: skip
OF_MIXING = {
    "exploration/gated_fraction", "exploration/cosine_mean", "exploration/cosine_min", "exploration/anchor_weight",
    "exploration/reward_mixed", "exploration/reward_plain",
}  # fmt: skip
OF_EVALUATION = {"eval/mean@1", "eval/pass@1", "eval/pass@2", "eval/pass@4", "eval/length", "eval/truncated"}


@cache
def composed(*overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("train", overrides=["debug=fast", "trainer=cpu", *overrides])


def run(folder: Path, *overrides: str) -> Path:
    """Trains in ``folder`` and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = composed(*overrides).copy()
    config.allow_targets = typed(overrides)
    train(config, folder, {"algo": overrides[1].removeprefix("algo=")}, folder.parent)
    return folder


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder / "tensorboard")).Reload()


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def equal(one: Path, two: Path) -> bool:
    other = weights(two)
    return all(torch.equal(tensor, other[name]) for name, tensor in weights(one).items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """One run of each set of overrides."""
    return cache(lambda *overrides: run(tmp_path_factory.mktemp("run"), *overrides))


def test_summary(trained: Callable[..., Path]):
    found = summary(trained(*MIXING))
    history = found["eval"].pop("history")
    before, after = found["eval"]["before"], found["eval"]["after"]
    assert [entry.pop("iteration") for entry in history] == [0, 1, 2]
    assert (history[0], history[-1]) == (before, after)
    for metrics in history:
        assert metrics.keys() == {name.removeprefix("eval/") for name in OF_EVALUATION}
        assert all(isinstance(value, float) for value in metrics.values())
        assert 0 <= metrics["mean@1"] == metrics["pass@1"] <= metrics["pass@2"] <= metrics["pass@4"] <= 1
    assert found["iterations"] == 2
    assert isinstance(found["tokens_generated"], int)
    assert 2 * 16 <= found["tokens_generated"] <= 2 * 16 * 32
    assert 0 < found["wall_s"] < 600
    assert found["rows_left_out"] == {}
    assert found["seed"] == 0
    assert found["methods"] == {"algo": "gspo"}
    assert found["git_commit"] is None or len(found["git_commit"].rstrip("+")) == 40
    assert {"python", "torch", "lightning", "transformers"} <= found["versions"].keys()


@pytest.mark.parametrize("overrides", [MIXING, PLAIN], ids=["neighbor gspo", "token grpo"])
def test_every_figure_is_in_tensorboard(trained: Callable[..., Path], overrides: tuple[str, ...]):
    found = events(trained(*overrides))
    scalars = set(found.Tags()["scalars"])
    expected = ALWAYS | OF_EVALUATION | (OF_MIXING if overrides is MIXING else set())
    assert expected <= scalars
    assert overrides is MIXING or not OF_MIXING & scalars
    assert "rollouts/text_summary" in found.Tags()["tensors"]
    for tag in expected - OF_MIXING:
        assert [event.step for event in found.Scalars(tag)] == ([0, 1, 2] if tag in OF_EVALUATION else [0, 1]), tag
    assert all(event.value < 1e-4 for event in found.Scalars("rollout/mismatch_max"))
    assert set(found.Tags()["distributions"]) == {"policy/advantages", "policy/ratios", "rollout/lengths"}
    assert [event.step for event in found.Images("eval/pass_at_k")] == [0, 1, 2]
    lengths = [event.value for event in found.Scalars("rollout/length_mean")]
    assert sum(lengths) * 16 == pytest.approx(summary(trained(*overrides))["tokens_generated"])


def test_sample_rollouts_show_mixed_positions(trained: Callable[..., Path]):
    def text(overrides: tuple[str, ...]) -> str:
        (event,) = events(trained(*overrides)).Tensors("rollouts/text_summary")
        return event.tensor_proto.string_val[0].decode()

    assert text(MIXING).count("(answer ") == text(PLAIN).count("(answer ") == 4
    assert "**[" in text(MIXING)
    assert "**[" not in text(PLAIN)


def test_the_record_has_what_tensorboard_has(trained: Callable[..., Path]):
    folder, found = trained(*MIXING), events(trained(*MIXING))
    store = RunStore(folder)
    for tag in ALWAYS | OF_MIXING:
        values = {record.iteration: record.metrics[tag] for record in store.iterations() if tag in record.metrics}
        assert values == pytest.approx({e.step: e.value for e in found.Scalars(tag)}, rel=1e-6), tag
    for record in store.iterations():
        rates = [problem.solved / problem.tried for problem in record.problems]
        assert len(rates) == 4
        assert sum(rates) / 4 == pytest.approx(record.metrics["train/mean@1"])
    for evaluation in store.evaluations():
        (rates,) = evaluation.rates.values()
        assert len(rates) == 8
        assert sum(rates) / 8 == pytest.approx(evaluation.metrics["mean@1"])
    assert store.rollout_iterations() == [0, 1]
    (text,) = (e.tensor_proto.string_val[0].decode() for e in found.Tensors("rollouts/text_summary"))
    assert len(store.rollouts(0)) == 16
    assert all(markdown_literal(rollout.question) in text for rollout in store.rollouts(0)[:4])
    assert sum(len(rollout.mixed) for rollout in store.rollouts(0)) > 0
    assert 100_000 < (folder / "report.html").stat().st_size < 1_500_000
    told = store.description()
    assert (told.model, told.seed, told.iterations) == ("demo", 0, 2)
    assert told.strategy.startswith("NeighborMixing(")


def test_the_trained_model_loads(trained: Callable[..., Path]):
    folder = trained(*MIXING)
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    start = ModelSource().load().state_dict()
    assert model.state_dict().keys() == start.keys()
    assert any(not torch.equal(tensor, start[name]) for name, tensor in model.state_dict().items())
    saved = torch.load(folder / "checkpoints" / "iteration-2" / "state.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(tensor, saved[f"policy.lm.{name}"]) for name, tensor in model.state_dict().items())
    assert len(AutoTokenizer.from_pretrained(folder / "model")) == len(ModelSource().tokenizer())


def test_the_seed_decides(trained: Callable[..., Path], tmp_path: Path):
    first = trained(*MIXING)
    again = run(tmp_path / "again", *MIXING)
    other = run(tmp_path / "other", *MIXING, "seed=1", "callbacks.evaluation=null")
    assert equal(first, again)
    assert summary(first)["eval"] == summary(again)["eval"]
    assert not equal(first, other)
    assert summary(other)["seed"] == 1


def test_evaluation_does_not_change_the_training(trained: Callable[..., Path], tmp_path: Path):
    bare = run(tmp_path / "bare", *MIXING, "callbacks.evaluation=null", "callbacks.rollout_report=null")
    assert equal(trained(*MIXING), bare)
    found = summary(bare)
    assert found["eval"] == {"before": None, "after": None, "history": []}
    assert found["tokens_generated"] == summary(trained(*MIXING))["tokens_generated"]


@pytest.mark.parametrize("name", OPTIONAL)
def test_each_optional_callback_can_be_left_out(tmp_path: Path, name: str):
    folder = run(tmp_path / "run", *MIXING, *(s for s in SMALL if name not in s), f"callbacks.{name}=null")
    left = {path.name for path in folder.iterdir()}
    written = {
        "summary": {"summary.json"}, "export": {"model"}, "checkpoint": {"checkpoints"},
        "run_record": {"record", "report.html"},
    }  # fmt: skip
    assert left == {".hydra", ".lock", "tensorboard"}.union(*written.values()) - written.get(name, set())
    tags = {tag.partition("/")[0] for tag in events(folder).Tags()["scalars"]} - {"epoch", "time"}
    written_by = {
        "rollout_metrics": {"train", "reward"}, "exploration_monitor": {"exploration"}, "memory": {"memory"},
        "evaluation": {"eval"}, "health": {"health"},
    }  # fmt: skip
    everything = {"health", "policy", "rollout", "train", "reward", "exploration", "memory", "eval"}
    assert tags == everything - written_by.get(name, set())


def test_every_optional_callback_is_tried():
    assert set(composed(*MIXING).callbacks) == {"rollout", *OPTIONAL}


def test_a_term_from_outside_is_logged_and_part_of_the_reward(tmp_path: Path):
    own = (
        "reward_terms=[custom]",
        "reward_terms.custom.term._target_=own_terms.Brevity",
        "reward_terms.custom.weight=0.5",
    )
    found = events(run(tmp_path / "run", *PLAIN, *SMALL, *own, "+reward_terms.custom.term.limit=33"))
    (bonus,), (correctness,), (reward,) = (
        [event.value for event in found.Scalars(tag)] for tag in ("reward/custom", "reward/correctness", "train/reward")
    )
    assert bonus == 0.5  # no response is longer than 32 tokens
    assert reward == pytest.approx(correctness + 0.5)


def test_a_term_that_raises_names_the_sample(tmp_path: Path):
    own = ("reward_terms=[custom]", "reward_terms.custom.term._target_=own_terms.fails_on_problem_2")
    with pytest.raises(RuntimeError, match=r"reward_terms\.custom raised ValueError.* on response 8, to problem 2: "):
        run(tmp_path / "run", *PLAIN, *SMALL, *own, "+reward_terms.custom.term._partial_=true")
