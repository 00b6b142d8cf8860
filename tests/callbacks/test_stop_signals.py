"""Which signals leave a mark, and which of them stop at once."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_run import batch, trainer

from ngrpo.callbacks.stopping import GracefulStop
from ngrpo.errors import StopNow, Stopped

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def started(tmp_path: Path, max_time_s: int | None = None) -> tuple[GracefulStop, Any]:
    callback, made = GracefulStop(tmp_path, iterations=9, max_time_s=max_time_s), trainer()
    made.strategy.launcher = SimpleNamespace(kill=lambda number: None)
    callback.on_train_start(made, None)
    return callback, made


def end(callback: GracefulStop, made: Any) -> tuple[int, str]:
    """Returns the exit status and what is said when the iteration is over."""
    callback.on_train_batch_end(made, None, None, batch(2), 0)
    assert made.should_stop
    with pytest.raises(Stopped) as stopped:
        callback.on_train_epoch_end(made, None)
    return stopped.value.status, str(stopped.value).partition(";")[0]


@pytest.mark.parametrize("number", NUMBERS)
def test_each_finishes_the_iteration(number: signal.Signals, tmp_path: Path) -> None:
    callback, made = started(tmp_path)
    signal.raise_signal(number)
    assert end(callback, made) == (128 + number, f"stopped by {number.name} after iteration 3 of 9")


def test_a_second_request_stops_at_once_and_hanging_up_is_none(tmp_path: Path) -> None:
    callback, made = started(tmp_path)
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
        signal.raise_signal(number)
    assert end(callback, made)[0] == 128 + signal.SIGHUP
    with pytest.raises(StopNow) as stopped:
        signal.raise_signal(signal.SIGINT)
    assert stopped.value.status == 128 + signal.SIGINT


def test_an_ignored_hang_up_stays_ignored_as_nohup_wants_it(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    callback, made = started(tmp_path)
    signal.raise_signal(signal.SIGHUP)
    callback.on_train_batch_end(made, None, None, batch(2), 0)
    assert not made.should_stop
    callback.teardown(made, None, "fit")
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_counts_more_than_the_time(number: signal.Signals, tmp_path: Path) -> None:
    callback, made = started(tmp_path, max_time_s=0)
    assert end(callback, made) == (0, "stopped by trainer.max_time after iteration 3 of 9")
    callback, made = started(tmp_path, max_time_s=0)
    signal.raise_signal(number)
    assert end(callback, made)[0] == 128 + number


def test_an_iteration_that_ends_the_run_anyway_is_not_called_a_stop(tmp_path: Path) -> None:
    callback, made = started(tmp_path, max_time_s=0)
    made.should_stop = True  # of the rollout callback, which comes before
    callback.on_train_batch_end(made, None, None, batch(2), 0)
    callback.on_train_epoch_end(made, None)
