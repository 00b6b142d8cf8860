"""What a strategy learns: trained, saved, resumed, exported, and served by the engine."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from lightning import Callback
from places import ROOT
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM
from update_probe import Case, gradient

from ngrpo.checkpoint.export import checkpoint_weights
from ngrpo.config.permissions import typed
from ngrpo.config.schema import register
from ngrpo.entrypoints.evaluate import evaluate
from ngrpo.entrypoints.train import train
from ngrpo.errors import SettingError
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.learned import FILE, load_learned, save_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout import worker
from ngrpo.training.samples import Sample

CONF = str(ROOT / "conf")
QUICK = [
    "exploration=hrpo",
    "algo=grpo",
    "algo.optimizer_steps=1",
    "debug=fast",
    "trainer=cpu",
    "callbacks.evaluation=null",
    "reward.workers=1",
    "rollout.max_new_tokens=64",
    "seed=1",  # of which the first groups differ in their rewards
]
INITIAL = HybridReasoning().initial_parameters(128)


@dataclass
class Watch(Callback):
    """Keeps what each iteration's rollouts were made with, and what the policy had learned by then."""

    worker: object
    run_dir: Path

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        served, held = copied(self.worker.bound.parameters), copied(pl_module.weights.learned_exploration())
        torch.save((served, held), self.run_dir / f"seen-{batch.iteration}.pt")


def copied(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in values.items()}


def run(folder: Path, *overrides: str) -> Path:
    register()
    folder.mkdir(exist_ok=True)
    with initialize_config_dir(version_base="1.3", config_dir=CONF):
        config = compose("train", overrides=[*QUICK, *overrides])
    config.allow_targets = typed(overrides)
    train(config, folder, {}, folder.parent)
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    watch = "+callbacks.watch._target_=test_learned_exploration.Watch"
    return run(tmp_path_factory.mktemp("straight"), watch)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def test_every_parameter_is_trained_at_its_own_rate(straight: Path):
    learned = checkpoint_weights(straight / "checkpoints" / "iteration-1").learned
    assert learned.keys() == INITIAL.keys()
    for name, value in learned.items():
        moved = (value - INITIAL[name]).abs()
        # The first step of AdamW moves an entry by the learning rate, less its weight decay.
        rate = 1e-3 if name == "lambda" else 1e-4
        assert rate * 0.5 < float(moved.max()) < rate * 1.2, name


def test_the_engine_gets_them_at_every_hand_over(straight: Path):
    (first, policy_first), (second, policy_second) = (torch.load(straight / f"seen-{i}.pt") for i in range(2))
    assert same(first, INITIAL)
    assert same(policy_first, INITIAL)
    assert same(second, policy_second)
    assert not same(second, INITIAL)
    assert same(second, checkpoint_weights(straight / "checkpoints" / "iteration-1").learned)


def test_a_resumed_run_goes_on_bit_for_bit(straight: Path, tmp_path: Path):
    resumed = run(tmp_path / "resumed", f"ckpt='{straight}/checkpoints/iteration-1'")
    ours, theirs = (checkpoint_weights(folder / "checkpoints" / "iteration-2") for folder in (resumed, straight))
    assert same(ours.learned, theirs.learned)
    assert same(ours.model, theirs.model)
    states = [
        torch.load(folder / "checkpoints" / "iteration-2" / "state.ckpt", weights_only=True)["optimizer_states"][0]
        for folder in (resumed, straight)
    ]
    assert sorted(group["lr"] for group in states[0]["param_groups"]) == [1e-4, 1e-4, 1e-4, 1e-4, 3e-4, 1e-3]
    for number, state in states[0]["state"].items():
        assert same(state, states[1]["state"][number])


def test_they_are_exported_beside_the_model_and_read_from_there(straight: Path):
    exported = load_file(straight / "model" / FILE)
    assert same(exported, checkpoint_weights(straight / "checkpoints" / "iteration-2").learned)
    source = ModelSource(str(straight / "model"))
    assert same(load_learned(source, HybridReasoning()), exported)
    assert load_learned(source, TokenSampling()) == {}


def test_evaluation_runs_with_what_was_exported(straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    served: list[dict[str, Tensor]] = []
    bind = worker.bind

    def noted(strategy, embedding, vocabulary, parameters):
        served.append(parameters)
        return bind(strategy, embedding, vocabulary, parameters)

    monkeypatch.setattr(worker, "bind", noted)
    register()
    overrides = [
        f"model.path={straight / 'model'}", "rollout.max_new_tokens=8", "data.max_prompt_tokens=128",
        "benchmark.demo.problems=2", "n=1", "accelerator=cpu", "threads=1",
        "+evaluator.exploration._target_=ngrpo.exploration.hrpo.HybridReasoning",
    ]  # fmt: skip
    with initialize_config_dir(version_base="1.3", config_dir=CONF):
        evaluate(compose("evaluate", overrides=overrides), tmp_path)
    assert same(served[0], load_file(straight / "model" / FILE))


def test_a_file_of_another_strategy_is_refused(tiny_source: ModelSource, tmp_path: Path):
    save_learned({}, tmp_path)
    assert not (tmp_path / FILE).exists()
    for part in Path(tiny_source.path).iterdir():
        (tmp_path / part.name).write_bytes(part.read_bytes())
    source = replace(tiny_source, path=str(tmp_path))
    strategy = HybridReasoning()
    assert same(load_learned(source, strategy), strategy.initial_parameters(32))
    save_file({"gate": torch.zeros(3)}, tmp_path / FILE)
    with pytest.raises(SettingError, match=r"exploration\.safetensors with gate, which are not .*HybridReasoning"):
        load_learned(source, strategy)


@dataclass
class Keep(Callback):
    """Keeps what the loss was given."""

    samples: list[Sample] = field(default_factory=list)

    def on_train_start(self, trainer, pl_module) -> None:
        accumulate = pl_module.policy_update.accumulate

        def recorded(samples, backward):
            self.samples.extend(samples)
            return accumulate(samples, backward)

        pl_module.policy_update.accumulate = recorded


def test_the_reference_scores_the_text_alone(make_engine, bound, requests, sampling, tiny_model_path: Path):
    """Both are the same model, so the difference is that of the inputs."""
    engine, strategy, keep = make_engine(), HybridReasoning(r_min=0.5, r_max=0.6), Keep()
    rollouts = engine.generate(requests[:8], sampling, bound(engine, strategy))
    case = Case(
        str(tiny_model_path), "grpo", sampling.temperature, 300, rollouts, torch.eye(2, 4), exploration=strategy
    )
    gradient(case, keep)
    assert [s.rollout for s in keep.samples] == rollouts
    model = AutoModelForCausalLM.from_pretrained(tiny_model_path, attn_implementation="eager").eval()
    worst = 0.0
    for sample in keep.samples:
        r = sample.rollout
        with torch.no_grad():
            logits = model(torch.cat([r.prompt_ids, r.response_ids])[None]).logits[0, len(r.prompt_ids) - 1 : -1]
        plain = (logits / sampling.temperature).log_softmax(-1)[torch.arange(r.length), r.response_ids]
        torch.testing.assert_close(sample.ref_log_prob, plain, atol=1e-4, rtol=0)
        worst = max(worst, float((plain - r.log_probs).abs().max()))
    assert worst > 0.01
