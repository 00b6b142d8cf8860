"""What a resumed run's loggers show: every iteration and every evaluation once."""

import csv
from pathlib import Path

import pytest
from faulty_run import QUICK, finish
from killed_logger import in_mlflow, in_wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.faults

EVALUATING = (
    *(setting for setting in QUICK if not setting.startswith(("callbacks.evaluation", "trainer.iterations"))),
    "callbacks.evaluation.every=1", "callbacks.evaluation.evaluator.samples=1", "data.eval_problems=2",
    "callbacks.checkpoint.keep=9", "rollout.max_new_tokens=8",
)  # fmt: skip


def in_events(run: Path, tag: str) -> list[int]:
    return [event.step for event in EventAccumulator(str(run / "tensorboard")).Reload().Scalars(tag)]


def in_table(run: Path, tag: str) -> list[int]:
    with (run / "csv" / "metrics.csv").open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file) if row.get(tag)]


def in_services(run: Path, tag: str) -> list[list[int]]:
    found = (in_wandb(run)[tag], in_mlflow(run)[tag.replace("@", "_at_")])
    return [[step for step, _ in points] for points in found]


def test_a_run_that_goes_on_from_an_earlier_checkpoint_shows_nothing_twice(tmp_path: Path) -> None:
    run = tmp_path / "run"
    logging = (
        "logger=[tensorboard,csv,wandb,mlflow]", "logger.wandb.mode=offline",
        f"logger.mlflow.tracking_uri=sqlite:///{run}/mlflow.db",
    )  # fmt: skip
    settings = (*EVALUATING, *logging)
    status, said = finish(run, "trainer.iterations=4", settings=settings)
    assert status == 0, said
    # As after a kill: iterations 3 and 4 are logged, and are made again.
    earlier = f"ckpt={run}/checkpoints/iteration-2"
    status, said = finish(run, "trainer.iterations=5", earlier, settings=settings)
    assert status == 0, said
    for tag, steps in (
        ("train/reward", [0, 1, 2, 3, 4]), ("policy/loss", [0, 1, 2, 3, 4]), ("eval/mean@1", [0, 1, 2, 3, 4, 5])
    ):  # fmt: skip
        assert [in_events(run, tag), in_table(run, tag), *in_services(run, tag)] == [steps] * 4
