"""Training and evaluation from Python: twice in a process, in a thread, silently, with all that was reached."""

import logging
import random
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

import ngrpo
from ngrpo.entrypoints.python_api.evaluation import EvaluationSummary
from ngrpo.entrypoints.python_api.summary import Summary
from ngrpo.errors import SettingError

FAST = ("debug=fast", "callbacks.model_check=null", "callbacks.run_record.page_every=0")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python api")


def trained(here: Path, *overrides: str, **settings: Any) -> Summary:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        return ngrpo.train(*FAST, *overrides, **settings)


@pytest.fixture(scope="module")
def summary(here: Path) -> Summary:
    return trained(here, exploration={"name": "neighbor", "rate": 0.2}, trainer={"iterations": 2})


def test_the_summary_has_metrics_paths_and_evaluation(summary: Summary, here: Path) -> None:
    assert summary.iterations == len(summary.metrics) == 2
    assert summary.methods == {"algo": "grpo", "exploration": "neighbor", "rollout": "auto"}
    assert summary.curve("train/reward") == [one["train/reward"] for one in summary.metrics]
    assert "exploration/gated_fraction" in summary.metrics[0]
    assert list(summary.evaluation)[0] == 0
    assert list(summary.evaluation)[-1] == 2
    assert 0 <= summary.evaluation[2]["mean@1"] <= 1
    assert summary.run_dir.is_relative_to(here / "outputs")
    paths = (summary.checkpoint, summary.model, summary.report, summary.log)
    assert all(path is not None and path.exists() and path.is_relative_to(summary.run_dir) for path in paths)
    assert "iteration 2/2" in summary.log.read_text()
    assert summary.stopped is None


def test_an_unknown_metric_is_answered_by_the_known_ones(summary: Summary) -> None:
    with pytest.raises(KeyError, match="train/rewrad is no metric of this run; it has .*train/reward"):
        summary.curve("train/rewrad")


def test_the_settings_are_stored_as_those_of_the_command(summary: Summary) -> None:
    overrides = (summary.run_dir / ".hydra" / "overrides.yaml").read_text()
    assert overrides.splitlines()[:2] == ["- exploration=neighbor", "- exploration.rate=0.2"]
    assert f"output_dir: {summary.run_dir}" in (summary.run_dir / ".hydra" / "hydra.yaml").read_text()


def test_a_second_training_in_a_thread_has_another_strategy(here: Path, summary: Summary) -> None:
    found: list[Summary] = []
    thread = threading.Thread(
        target=lambda: found.append(trained(here, "exploration=gaussian", "trainer.iterations=1"))
    )
    thread.start()
    thread.join()
    (second,) = found
    assert second.methods["exploration"] == "gaussian"
    assert second.run_dir != summary.run_dir
    assert second.iterations == 1


def test_it_resumes(here: Path, summary: Summary) -> None:
    more = trained(here, "exploration=neighbor", "exploration.rate=0.2", "trainer.iterations=3", ckpt=summary.run_dir)
    assert more.iterations == 3
    assert more.curve("train/reward")[:2] == summary.curve("train/reward")


def test_an_evaluation_gives_reports(here: Path, summary: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    lengths = ("data.max_prompt_tokens=128", "rollout.max_new_tokens=64", "benchmark.demo.problems=3")
    found = ngrpo.evaluate(*lengths, model={"path": summary.model}, benchmark=["demo"], n=2)
    assert isinstance(found, EvaluationSummary)
    report = found.reports["demo"]
    assert (report.problems, report.samples) == (3, 2)
    assert report.metrics["pass@2"].low <= report.metrics["pass@2"].value <= report.metrics["pass@2"].high
    assert (found.folder / "evaluation.json").exists()
    assert found.folder.is_relative_to(here / "outputs" / "evaluate")


def test_nothing_is_printed_and_the_process_is_left_as_it_was(
    here: Path, summary: Summary, capfd: pytest.CaptureFixture[str]
) -> None:
    before = state()
    trained(here, "trainer.iterations=1")
    assert state() == before
    assert capfd.readouterr() == ("", "")


def state() -> list[str]:
    """All that a training uses and that a process has once."""
    loggers = [logging.getLogger(name) for name in ("ngrpo", "lightning.pytorch", "")]
    return [
        str(part)
        for part in (
            random.getstate(),
            np.random.get_state(),
            torch.get_rng_state().tolist(),
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            torch.get_default_dtype(),
            [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
            [(one.level, one.propagate, one.handlers) for one in loggers],
            HydraConfig.instance().cfg,
            GlobalHydra.instance().is_initialized(),
        )
    ]


def test_verbose_shows_the_progress(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(here, "trainer.iterations=1", verbose=True)
    said = capsys.readouterr().out
    assert "iteration 1/1" in said
    assert "run folder" in said


def test_its_time_being_up_is_no_error(here: Path) -> None:
    stopped = trained(here, "trainer.iterations=50", "trainer.max_time=1s")
    assert 1 <= stopped.iterations < 50
    assert stopped.stopped is not None
    assert re.match(r"stopped by trainer\.max_time after iteration \d+ of 50; .* resume with ckpt=", stopped.stopped)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["algo.prompts_per_batch=0"], r"^algo\.prompts_per_batch=0 is too small: set it to 1 or more\.$"),
        (["trainer.devices=2"], r"^trainer\.devices=2 trains in 2 processes, which only the command can start; run"),
        (["trainer.iterations=ten"], r"^trainer\.iterations=ten has a value of another type"),
        (["exploration=nieghbor"], r"^exploration=nieghbor is not known; choose one of"),
    ],
)
def test_what_is_refused_is_one_sentence_and_leaves_nothing(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=sentence):
        ngrpo.train(*words)
    with pytest.raises(SettingError):
        ngrpo.evaluate("n=0")
    assert list(tmp_path.iterdir()) == []
