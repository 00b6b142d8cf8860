"""The display of a training: what it says, where, and that it is quiet elsewhere."""

import logging
from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from fake_run import batch, trainer
from rich.console import Console

from ngrpo.callbacks.progress import ProgressReport


@pytest.fixture
def run():
    made = trainer()
    made.callback_metrics |= {"train/reward": torch.tensor(0.5), "rollout/tokens_per_s": torch.tensor(1234.0)}
    return made


def report(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[ProgressReport, SimpleNamespace, Console]:
    console = Console(force_terminal=terminal, width=160, file=StringIO())
    monkeypatch.setattr("ngrpo.callbacks.progress.get_console", lambda: console)
    worker = SimpleNamespace(observer=None)
    return ProgressReport(iterations=4, worker=worker), worker, console


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
        callback.on_train_batch_start(run, None, batch(0), 0)
        assert lines(callback)[1] == "updating"
        callback.on_before_optimizer_step(run, None, None)
        callback.on_before_optimizer_step(run, None, None)
        assert lines(callback)[1] == "updating, optimiser step 2"
        callback.on_train_batch_end(run, None, None, batch(0, SimpleNamespace(group_size=8)), 0)
        assert "1/4" in lines(callback)[0]
        assert "reward 0.5  tokens/s 1234" in lines(callback)[0]
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
    assert caplog.messages == ["iteration 2/4  reward 0.5  tokens/s 1234"]


def test_other_ranks_are_quiet(run, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    run.is_global_zero = False
    callback, worker, console = report(True, monkeypatch)
    with caplog.at_level(logging.INFO):
        callback.setup(run, None, "fit")
        callback.on_train_batch_end(run, None, None, batch(1, SimpleNamespace(group_size=8)), 0)
    assert (console.file.getvalue(), caplog.messages, worker.observer) == ("", [], None)
