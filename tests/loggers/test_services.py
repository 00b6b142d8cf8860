"""Weights & Biases, MLflow and Trackio without a network: a run that was killed shows every step once."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest
from killed_logger import Points, in_mlflow, in_trackio, in_wandb, log

from ngrpo.errors import SettingError
from ngrpo.loggers.journal import Journal, Row
from ngrpo.loggers.journaled import JournaledLogger
from ngrpo.loggers.mlflow import Mlflow
from ngrpo.loggers.wandb import Wandb

SERVICES = [("wandb", in_wandb), ("mlflow", in_mlflow), ("trackio", in_trackio)]
MEDIA = {
    "wandb": {
        "policy/ratios": "histogram", "eval/pass_at_k": "image-file", "rollouts": "table-file", "config": "table-file",
    },
    "mlflow": {},
    "trackio": {
        "policy/ratios": "trackio.histogram", "eval/pass_at_k": "trackio.image", "rollouts": "trackio.table",
        "config": "trackio.markdown",
    },
}  # fmt: skip
NAMES = {"mlflow": ("eval/mean_at_1", "aime.24/x")}


@pytest.mark.parametrize(("service", "read"), SERVICES)
def test_a_run_that_was_killed_goes_on_without_a_lost_or_a_second_step(
    service: str, read: Callable[[Path], Points], tmp_path: Path
) -> None:
    if find_spec(service) is None:
        pytest.skip(f"needs {service}")
    log(service, tmp_path, done=0, last=5, killed=True)
    log(service, tmp_path, done=3, last=6, killed=False)
    found = read(tmp_path)
    evaluated, dotted = NAMES.get(service, ("eval/mean@1", "aime.24/x"))
    assert found["train/reward"] == [(step, float(step)) for step in range(6)]
    assert found[evaluated] == [(step, float(step)) for step in range(1, 7)]
    assert [step for step, _ in found[dotted]] == list(range(6))
    assert "epoch" not in found
    assert len(found["policy/nan"]) == 6
    assert all(isinstance(value, str) or value is None or math.isnan(value) for _, value in found["policy/nan"])
    assert media_in(found) == MEDIA[service]
    if service == "mlflow":
        assert {file.name for file in tmp_path.rglob("artifacts/**/000005.*")} == {
            "000005.png",
            "000005.json",
            "000005.md",
        }


def media_in(found: Points) -> dict[str, str]:
    """Returns the kinds of the media, by tag; all rows must have the same."""
    kinds = {tag: {value["_type"] for _, value in points} for tag, points in found.items() if _is_media(points)}
    assert all(len(points) == 6 for tag, points in found.items() if tag in kinds)
    return {tag: kind for tag, (kind,) in kinds.items()}


def _is_media(points: list[tuple[int, object]]) -> bool:
    return isinstance(points[0][1], dict) and "_type" in points[0][1]


def test_what_is_missing_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ngrpo.utils.optional_packages.find_spec", lambda name: None)
    for kind, service in ((Wandb, "wandb"), (Mlflow, "mlflow")):
        with pytest.raises(SettingError, match=rf"logger={service} needs {service}.*pip install 'ngrpo\[{service}\]'"):
            kind(str(tmp_path), "a-run")


def test_an_unknown_place_is_said_in_a_sentence(tmp_path: Path) -> None:
    logger = Mlflow(str(tmp_path), "a-run", tracking_uri="nowhere://x")
    with pytest.raises(SettingError, match=r"logger.mlflow.tracking_uri=nowhere://x"):
        _ = logger.experiment


class Kept(JournaledLogger):
    """A service that takes nothing back, with what it holds."""

    held: ClassVar[list[Row]] = []

    def open(self, journal: Journal) -> tuple[None, int]:
        return None, max((row.step for row in self.held), default=-1)

    def send(self, row: Row) -> None:
        self.held.append(row)

    def configure(self, settings: object) -> None:
        pass

    def close(self, succeeded: bool) -> None:
        pass


@pytest.mark.parametrize("finished", [True, False])
def test_what_takes_nothing_back_gets_what_it_lacks(
    finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the rest of the row of a closing evaluation, and what was logged before the checkpoint and never sent."""
    monkeypatch.setattr(Kept, "held", [])
    first = Kept("json", str(tmp_path), "a-run")
    for step in range(3):
        first.log_metrics({"eval/x": step + 1.0}, step + 1)
        first.log_metrics({"train/x": float(step)}, step)
        first.save()
    if finished:
        first.finalize("success")
    resumed = Kept("json", str(tmp_path), "a-run", iterations_done=2)
    resumed.log_metrics({"eval/x": 2.0}, 2)
    for step in (2, 3):
        resumed.log_metrics({"eval/x": step + 1.0}, step + 1)
        resumed.log_metrics({"train/x": float(step)}, step)
        resumed.save()
    resumed.finalize("success")
    for tag, steps in (("train/x", [0, 1, 2, 3]), ("eval/x", [1, 2, 3, 4])):
        assert [row.step for row in Kept.held if tag in row.metrics] == steps
        assert all(row.metrics[tag] == row.step for row in Kept.held if tag in row.metrics)
