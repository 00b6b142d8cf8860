"""The comparison at start-up in whole runs of the demo: what passes, what is refused, what it would have cost."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from places import ROOT

from ngrpo.callbacks import model_check
from ngrpo.config.schema import register
from ngrpo.entrypoints.train import train
from ngrpo.errors import RunError
from ngrpo.model_check import comparison, known
from ngrpo.modeling import policy
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import PackedBatch
from ngrpo.report.run_store import RunStore
from ngrpo.rollout.torch_engine.engine import TorchEngine

CONF = ROOT / "conf"
ON = "+callbacks.model_check._target_=ngrpo.callbacks.model_check.ModelCheck"
OFF = "callbacks.model_check=null"


def composed(*overrides: str) -> DictConfig:
    register()
    small = (
        "debug=fast", "trainer=cpu", "trainer.iterations=1", "callbacks.evaluation=null", "callbacks.export=null",
        "reward.workers=1", "exploration.end_token=null",
    )  # fmt: skip
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("train", overrides=["exploration=neighbor", *small, *overrides])


def run(folder: Path, *overrides: str) -> float:
    """Trains in ``folder`` and returns the first iteration's mismatch."""
    folder.mkdir(exist_ok=True)
    train(composed(*overrides), folder, {"algo": "grpo"}, folder.parent)
    return RunStore(folder).iterations()[-1].metrics["rollout/mismatch_mean"]


def shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packing that counts the positions of responses from one too high."""
    scored_states = policy.ScoringModel.scored_states

    def shifted_states(self, batch: PackedBatch, exploration):
        batch.positions[batch.response_slots] += 1
        return scored_states(self, batch, exploration)

    monkeypatch.setattr(policy.ScoringModel, "scored_states", shifted_states)


def another_rope(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that takes another theta than the model has."""
    start = TorchEngine.start

    def started(self, device: torch.device) -> None:
        start(self, device)
        self.lm.model.rotary_emb.inv_freq *= 0.8

    monkeypatch.setattr(TorchEngine, "start", started)


@pytest.mark.parametrize(("fault", "path"), [(shifted, "trainer"), (another_rope, "engine")])
def test_a_fault_is_refused_with_figures_and_shows_as_mismatch_without_the_check(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    path: str,
    cache_dir: Path,
):
    right = run(tmp_path / "right", OFF)
    fault(monkeypatch)
    with pytest.raises(RunError) as refused:
        run(tmp_path / "refused", ON)
    said = str(refused.value)
    assert said.startswith(
        f"model.path=demo would be trained wrongly: the {path} differs from the model's own logits by "
    )
    assert "set callbacks.model_check=null to continue anyway." in said
    assert refused.value.everywhere
    assert not (tmp_path / "refused" / "checkpoints").exists()
    wrong = run(tmp_path / "unchecked", OFF, "callbacks.mismatch_limit=null")
    assert right < 1e-5 < 1e-3 < wrong


def test_a_fault_that_is_not_compared_ends_the_run_in_its_first_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path
):
    another_rope(monkeypatch)
    with pytest.raises(
        RunError, match=r"^iteration 1: the engine's log-probs are .* there is no checkpoint to resume from"
    ):
        run(tmp_path / "run", OFF)


@pytest.mark.parametrize(
    "settings",
    [
        ("model/lora=adapter", "model.dtype=bfloat16", "trainer.optimizer.lr=1e-3"),
        ("algo=ppo", "algo.optimizer_steps=2", "trainer.precision=bf16-mixed"),
        ("exploration=gaussian", "algo=rloo", "model.checkpointing=full"),
        ("exploration=hrpo", "rollout.temperature=0.5"),
    ],
    ids=" ".join,
)
def test_whatever_is_trained_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cache_dir: Path, settings: tuple[str, ...]
):
    with caplog.at_level(logging.INFO, "ngrpo.callbacks.model_check"):
        run(tmp_path / "run", ON, *settings)
    assert "trainer and engine compute the model's own logits" in caplog.text


def test_what_passed_once_is_not_compared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path):
    calls = []
    compared = model_check.compared
    monkeypatch.setattr(model_check, "compared", lambda *args: calls.append(1) or compared(*args))
    first = run(tmp_path / "first", ON)
    assert run(tmp_path / "second", ON) == first == run(tmp_path / "off", OFF)
    assert len(calls) == 1
    run(tmp_path / "other strategy", ON, "exploration.rate=0.3")
    assert len(calls) == 2
    run(tmp_path / "first", ON, "ckpt=latest", "trainer.iterations=2")  # whose weights are new
    assert len(calls) == 3
    for file in (cache_dir / "model_check").iterdir():
        file.write_text('{"passed": tr')
    run(tmp_path / "third", ON)
    assert len(calls) == 4


def test_a_model_that_rounds_too_coarsely_is_told_in_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    @contextmanager
    def coarsely(model: torch.nn.Module, dtype: torch.dtype) -> Iterator[None]:
        inner = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
        handles = [one.register_forward_hook(lambda _, __, made: made * (1 + torch.rand_like(made))) for one in inner]
        yield
        for handle in handles:
            handle.remove()

    monkeypatch.setattr(comparison, "rounded_anew", coarsely)
    for name in ("first", "second"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            run(tmp_path / name, ON)
        assert "would pass for it; choose another model." in caplog.text


def test_the_engines_own_reason_is_told_before_any_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path
):
    def unable(self, *args):
        raise NotImplementedError("this engine cannot\nserve such heads")

    monkeypatch.setattr(TorchEngine, "generate", unable)
    with pytest.raises(RunError) as refused:
        run(tmp_path / "run", ON)
    assert str(refused.value) == (
        "the rollout engine cannot run model.path=demo (NotImplementedError: this engine cannot serve such heads); "
        "choose another model, or another engine such as rollout=torch."
    )


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NGRPO_CACHE", str(tmp_path / "file"))
    known.remember("name")
    assert not known.has_passed("name")
    monkeypatch.delenv("NGRPO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    known.remember("name")
    assert known.has_passed("name")
    assert not known.has_passed("other")
    assert (tmp_path / "xdg" / "ngrpo" / "model_check" / "name.json").exists()


@pytest.mark.parametrize(
    "words", [("trainer.precision=16-mixed",), ("rollout.engine.dtype=float16",)], ids=["both", "engine"]
)
def test_a_model_that_overflows_float16_is_told_by_its_module(words: tuple[str, ...], tmp_path: Path):
    source = ModelSource()
    model = source.load()
    large = model.get_parameter("model.layers.1.mlp.up_proj.weight")
    with torch.no_grad():
        large.mul_(6e4 / large.abs().max())
    model.save_pretrained(tmp_path / "large")
    source.tokenizer().save_pretrained(tmp_path / "large")
    with pytest.raises(RunError) as caught:
        run(tmp_path / "run", ON, f"model.path={tmp_path / 'large'}", *words)
    assert str(caught.value) == (
        f"model.path={tmp_path / 'large'} cannot be computed in float16: the output of lm.model.layers.1.mlp.up_proj "
        "is beyond the range of float16, so set trainer.precision=bf16-mixed and rollout.engine.dtype=bfloat16."
    )


@pytest.mark.parametrize("exploration", ["neighbor", "gumbel", "hrpo", "gaussian"])
def test_every_kind_of_strategy_passes_in_float16(exploration: str, tmp_path: Path):
    mismatch = run(tmp_path / "run", ON, "trainer.precision=16-mixed", f"exploration={exploration}")
    assert mismatch < 0.003
