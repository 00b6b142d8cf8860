"""The display of a training: what it says, where, and that it is quiet elsewhere."""

import logging
from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from fake_run import batch, trainer
from rich.console import Console

from ngrpo.callbacks.progress import ProgressReport, evaluation_lines, shown_metrics
from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.training.run_length import RunLength


@pytest.fixture
def run():
    made = trainer(callbacks=[RolloutCallback(None, RunLength(4), None)])
    made.callback_metrics |= {"train/reward": torch.tensor(0.5), "rollout/tokens_per_s": torch.tensor(1234.0)}
    return made


def report(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[ProgressReport, SimpleNamespace, Console]:
    console = Console(force_terminal=terminal, force_interactive=terminal, width=160, file=StringIO())
    monkeypatch.setattr("ngrpo.callbacks.progress.get_console", lambda: console)
    worker = SimpleNamespace(observer=None)
    return ProgressReport(RunLength(4), worker), worker, console


def lines(callback: ProgressReport) -> list[str]:
    plain = Console(width=160, file=StringIO())
    plain.print(callback._live.get_renderable())
    return [line.rstrip() for line in plain.file.getvalue().splitlines()]


def test_on_a_terminal_the_bar_and_the_work_are_shown(run, monkeypatch: pytest.MonkeyPatch) -> None:
    callback, worker, console = report(True, monkeypatch)
    try:
        callback.setup(run, None, "fit")
        worker.observer.generating(8)(3, 50)
        assert "generating 3/8" in lines(callback)[1]
        callback.on_train_start(run, None)
        callback.on_train_batch_start(run, None, batch(0), 0)
        assert lines(callback)[1] == "updating"
        callback.on_before_optimizer_step(run, None, None)
        callback.on_before_optimizer_step(run, None, None)
        assert lines(callback)[1] == "updating, optimiser step 2"
        callback.on_train_batch_end(run, None, None, batch(0, SimpleNamespace(group_size=8)), 0)
        assert "1/4" in lines(callback)[0]
        assert "reward 0.500  1.2k tokens/s" in lines(callback)[0]
        callback.on_train_batch_start(run, None, batch(1), 0)
        callback.on_before_optimizer_step(run, None, None)
        assert lines(callback)[1] == "updating, optimiser step 1"
    finally:
        callback.on_train_end(run, None)
    assert worker.observer is None


def test_elsewhere_there_is_a_log_line_and_no_observer(run, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    callback, worker, console = report(False, monkeypatch)
    with caplog.at_level(logging.INFO):
        callback.setup(run, None, "fit")
        assert worker.observer is None
        callback.on_train_batch_start(run, None, batch(1), 0)
        callback.on_train_batch_end(run, None, None, batch(1, SimpleNamespace(group_size=8)), 0)
        callback.on_exception(run, None, ValueError())
    assert console.file.getvalue() == ""
    assert caplog.messages == ["iteration 2/4  reward 0.500  1.2k tokens/s  ? s/iteration  -:-- to go"]


def test_other_ranks_are_quiet(run, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    run.is_global_zero = False
    callback, worker, console = report(True, monkeypatch)
    with caplog.at_level(logging.INFO):
        callback.setup(run, None, "fit")
        callback.on_train_start(run, None)
        callback.on_train_batch_end(run, None, None, batch(1, SimpleNamespace(group_size=8)), 0)
    assert (console.file.getvalue(), caplog.messages, worker.observer) == ("", [], None)


def test_metrics_are_written_as_people_write_them() -> None:
    values = {"train/pass@4": 0.98125, "train/reward": -1e-9, "policy/loss": -1.234e-6, "policy/entropy": 0.31249}
    told = shown_metrics({tag: torch.tensor(value) for tag, value in values.items()}, 4)
    assert told == ["reward 0.000", "pass@4 0.981", "loss -1.23e-6", "entropy 0.312"]


def test_each_benchmark_has_a_line_with_its_differences_to_the_evaluation_before_training() -> None:
    first = EvaluationResult(0, {"a/mean@1": 0.5, "a/pass@1": 0.5, "a/pass@4": 0.9, "b/mean@1": 1.0}, {"a/": []})
    later = EvaluationResult(
        20, {"a/mean@1": 0.4, "a/pass@4": 0.9, "b/mean@1": 0.5, "b/pass@1": 0.5}, {"a/": [], "b/": []}
    )
    assert evaluation_lines(first, first) == ["evaluation 0, a: mean@1 0.500  pass@4 0.900"]
    assert evaluation_lines(later, first) == [
        "evaluation 20, a: mean@1 0.400 (-0.100)  pass@4 0.900 (+0.000)",
        "evaluation 20, b: mean@1 0.500 (-0.500)",
    ]
