"""The comparison of the engine with PyTorch in whole runs of the demo, in evaluations and in samples."""

import logging
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from places import ROOT

import ngrpo
from ngrpo.config.schema import register
from ngrpo.engine_check.trial import EngineTrial
from ngrpo.entrypoints.evaluate import evaluate
from ngrpo.entrypoints.train import train
from ngrpo.errors import RunError
from ngrpo.report.run_store import RunStore
from ngrpo.rollout.torch_engine.engine import TorchEngine

ON = "+callbacks.engine_check._target_=ngrpo.callbacks.engine_check.EngineCheck"
ENGINE = "an engine 1.0"


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> list[bool]:
    """Makes the torch engine one that is compared; returns whether each comparison transferred weights."""
    made: list[bool] = []
    findings = EngineTrial.findings

    def noted(self, transfer):
        made.append(transfer is not None)
        return findings(self, transfer)

    monkeypatch.setattr(EngineTrial, "findings", noted)
    monkeypatch.setattr(TorchEngine, "checked_as", ENGINE)
    return made


def broken(name: str) -> tuple[str, ...]:
    return ("rollout=torch", f"rollout.engine._target_=broken_engines.{name}", "allow_targets=[broken_engines]")


def composed(name: str, *overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose(name, overrides=list(overrides))


def trained(folder: Path, *overrides: str) -> dict[str, float]:
    """Trains in ``folder`` and returns the metrics of the first iteration."""
    folder.mkdir(exist_ok=True)
    small = (
        "debug=fast", "trainer=cpu", "trainer.iterations=1", "callbacks.evaluation=null", "callbacks.export=null",
        "reward.workers=1", "exploration=neighbor",
    )  # fmt: skip
    train(composed("train", *small, *overrides), folder, {"algo": "grpo"}, folder.parent)
    return RunStore(folder).iterations()[-1].metrics


def evaluated(out: Path, *overrides: str) -> None:
    small = ("accelerator=cpu", "n=2", "benchmark.demo.problems=2", "rollout.max_new_tokens=8", f"out={out}")
    out.mkdir(exist_ok=True)
    evaluate(composed("evaluate", *small, *overrides), out)


def test_a_training_is_compared_once_and_goes_on_as_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, compared: list[bool]
):
    without = trained(tmp_path / "without")
    assert not compared
    with caplog.at_level(logging.INFO, "ngrpo.engine_check"):
        first = trained(tmp_path / "first", ON)
    assert f"{ENGINE} decides, records and scores as PyTorch does (" in caplog.text
    second = trained(tmp_path / "second", ON)
    assert compared == [True]
    computed = [name for name in without if name.startswith(("train/", "loss/", "rollout/mismatch"))]
    assert len(computed) > 5
    for name in computed:
        assert without[name] == first[name] == second[name], name
    trained(tmp_path / "other settings", ON, "exploration.k=2")
    assert compared == [True, True]


@pytest.mark.parametrize("fault", ["ShiftedMixtures", "StaleWeights"])
def test_a_training_with_a_broken_engine_is_refused_with_figures(tmp_path: Path, fault: str):
    with pytest.raises(RunError) as refused:
        trained(tmp_path / "run", ON, *broken(fault))
    said = str(refused.value)
    assert said.startswith(
        f"{ENGINE} does not compute what PyTorch computes for model.path=demo and NeighborMixing: log-probs of "
    )
    assert "positions, where rounding to float32 allows 0.0001 on average" in said
    assert said.endswith(
        "; set rollout=torch, install another version of vLLM, or set rollout.engine.check=false to continue anyway."
    )
    assert refused.value.everywhere
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_an_engine_that_is_refused_is_not_remembered(tmp_path: Path, compared: list[bool]):
    for _ in range(2):
        with pytest.raises(RunError):
            trained(tmp_path / "run", ON, *broken("NoTemperature"))
    assert len(compared) == 2


def test_an_engine_that_is_not_to_be_compared_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: list[bool]
):
    monkeypatch.setattr(TorchEngine, "checked_as", "")
    trained(tmp_path / "run", ON, *broken("NoTemperature"), "callbacks.mismatch_limit=null")
    evaluated(tmp_path / "evaluation", *broken("NoTemperature"))
    assert not compared


def test_an_evaluation_and_samples_are_compared_without_a_transfer(tmp_path: Path, compared: list[bool]):
    evaluated(tmp_path / "first")
    evaluated(tmp_path / "second")
    assert compared == [False]
    with pytest.raises(RunError, match=f"^{ENGINE} does not compute what .* and TokenSampling: log-probs of "):
        evaluated(tmp_path / "refused", *broken("NoTemperature"))
    assert len(ngrpo.sample("demo", "How much is 1 + 2?", exploration="neighbor", n=2)) == 2
    assert compared == [False] * 3
    with pytest.raises(RunError, match="and NeighborMixing: mixed flags of "):
        ngrpo.sample("demo", "How much is 1 + 2?", *broken("PlainSampling"), exploration="neighbor")
