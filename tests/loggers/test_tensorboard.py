"""A resumed run's events show every iteration once, whatever the clock says."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.loggers.tensorboard import TensorBoard


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in EventAccumulator(str(folder / "tensorboard")).Reload().Scalars(tag)]


def write_events(folder: Path, done: int, *logged: tuple[int, float]) -> None:
    logger = TensorBoard(str(folder), "tensorboard", "", iterations_done=done)
    for step, value in logged:
        logger.log_metrics({"a": value}, step)
    logger.finalize("success")


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    monkeypatch.setattr("time.time", lambda: float(seconds))


@pytest.mark.parametrize("clocks", [(1000, 2000, 3000), (3000, 2000, 1000), (1000, 1000, 1000)])
def test_events_beyond_the_checkpoint_are_dropped_whatever_the_clock(
    clocks: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, clocks[0])
    write_events(tmp_path, 0, (0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0))
    set_clock(monkeypatch, clocks[1])
    write_events(tmp_path, 2, (2, 5.0), (3, 6.0))
    assert points(tmp_path, "a") == [(0, 1.0), (1, 2.0), (2, 5.0), (3, 6.0)]
    set_clock(monkeypatch, clocks[2])
    write_events(tmp_path, 3, (3, 7.0))
    assert points(tmp_path, "a") == [(0, 1.0), (1, 2.0), (2, 5.0), (3, 7.0)]
