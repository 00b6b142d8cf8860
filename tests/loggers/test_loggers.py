"""A resumed run's loggers show every iteration once, and nothing is lost."""

import csv
import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.loggers.history import rename_future_events, rows_before
from ngrpo.loggers.resumable import Csv, TensorBoard


def csv_rows(folder: Path) -> list[tuple[str, str, str]]:
    with (folder / "csv" / "metrics.csv").open(newline="") as file:
        return [(row["step"], row.get("a", ""), row.get("b", "")) for row in csv.DictReader(file)]


def write_csv(folder: Path, done: int, *logged: tuple[int, dict[str, float]]) -> None:
    logger = Csv(str(folder), "csv", "", iterations_done=done)
    for step, metrics in logged:
        logger.log_metrics(metrics, step)
        logger.save()


def test_csv_goes_on_after_the_checkpoint_with_other_columns(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    write_csv(tmp_path, 0, (0, {"a": 1.0}), (1, {"a": 2.0}), (2, {"a": 3.0}), (2, {"a": 4.0}))
    assert len(csv_rows(tmp_path)) == 4
    write_csv(tmp_path, 2, (2, {"a": 5.0, "b": 6.0}), (3, {"b": 7.0}))
    assert csv_rows(tmp_path) == [("0", "1.0", ""), ("1", "2.0", ""), ("2", "5.0", "6.0"), ("3", "", "7.0")]
    assert not recwarn.list
    write_csv(tmp_path, 0, (0, {"a": 8.0}))  # begun anew
    assert csv_rows(tmp_path) == [("0", "8.0", "")]


def test_a_torn_line_is_no_row(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("a,b,step\n1,2,0\n3,4,1\n5,")
    assert rows_before(file, 9) == [{"a": "1", "b": "2", "step": "0"}, {"a": "3", "b": "4", "step": "1"}]
    assert rows_before(file, 1) == [{"a": "1", "b": "2", "step": "0"}]
    assert rows_before(tmp_path / "none.csv", 1) == []


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


def test_files_of_the_past_keep_their_names(tmp_path: Path) -> None:
    names = ["events.out.tfevents.0000000007.host.1.0", "events.out.tfevents.0000000009.host.1.0"]
    for name in names:
        (tmp_path / name).touch()
    rename_future_events(tmp_path, 10)
    assert sorted(os.listdir(tmp_path)) == names
    rename_future_events(tmp_path, 9)
    assert sorted(os.listdir(tmp_path)) == [f"events.out.tfevents.{n:010d}.host.1.0" for n in (0, 1)]
    rename_future_events(tmp_path / "nowhere", 9)
