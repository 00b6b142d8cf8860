"""A resumed run's table shows every iteration once, and nothing is lost."""

import csv
from pathlib import Path

import pytest

from ngrpo.loggers.csv import Csv


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
