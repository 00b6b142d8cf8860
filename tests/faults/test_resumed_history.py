"""What a resumed run's loggers show: every iteration and every evaluation once."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_run import QUICK, finish
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


@pytest.mark.parametrize(("logger", "steps"), [("tensorboard", in_events), ("csv", in_table)])
def test_a_run_that_goes_on_from_an_earlier_checkpoint_shows_nothing_twice(
    logger: str, steps: Callable[[Path, str], list[int]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    settings = (*EVALUATING, f"logger={logger}", "callbacks.rollout_report=null", "callbacks.histograms=null")
    status, said = finish(run, "trainer.iterations=4", settings=settings)
    assert status == 0, said
    # As after a kill: iterations 3 and 4 are logged, and are made again.
    earlier = f"ckpt={run}/checkpoints/iteration-2"
    status, said = finish(run, "trainer.iterations=5", earlier, settings=settings)
    assert status == 0, said
    assert steps(run, "train/reward") == [0, 1, 2, 3, 4]
    assert steps(run, "policy/loss") == [0, 1, 2, 3, 4]
    assert steps(run, "eval/mean@1") == [0, 1, 2, 3, 4, 5]
