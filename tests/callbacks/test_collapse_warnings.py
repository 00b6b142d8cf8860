"""Each sign of trouble is told once, with a remedy, and not in a run that goes well."""

import pytest
import torch
from fake_run import batch, trainer

from ngrpo.callbacks.collapse_warnings import CollapseWarnings

WELL = {"policy/entropy": 1.0, "rollout/mismatch_mean": 0.001, "rollout/truncated": 0.1, "train/zero_signal": 0.5}


def run(callback: CollapseWarnings, course: list[dict[str, float]], start: int = 0) -> None:
    for iteration, metrics in enumerate(course, start):
        values = {tag: torch.tensor(value) for tag, value in metrics.items()}
        callback.on_train_batch_end(trainer(callback_metrics=values), None, None, batch(iteration), 0)


@pytest.mark.parametrize(
    ("tag", "value", "said"),
    [
        ("policy/entropy", 0.1, "fallen below 0.2 of what it was (policy/entropy 0.1): rollouts become alike; raise "),
        ("rollout/mismatch_mean", 0.06, "drift from the trainer's (rollout/mismatch_mean 0.06): updates"),
        ("rollout/truncated", 0.6, "length limit (rollout/truncated 0.60); raise rollout.max_new_tokens"),
        ("train/zero_signal", 1.0, "no group has rewards that differ (train/zero_signal 1): nothing is learned; take"),
    ],
)
def test_each_is_said_once(tag: str, value: float, said: str, caplog: pytest.LogCaptureFixture) -> None:
    callback = CollapseWarnings(window=3)
    run(callback, [WELL] * 3 + [WELL | {tag: value}] * 2)
    assert caplog.records == []  # a single bad iteration is no trend
    run(callback, [WELL | {tag: value}] * 4, start=5)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("iteration 6: ")
    assert said in record.getMessage()


def test_a_run_that_goes_well_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    run(CollapseWarnings(window=2), [WELL, WELL | {"policy/entropy": 0.5}] * 10)
    run(CollapseWarnings(window=2), [{}] * 4)  # nothing is logged
    assert caplog.records == []


def test_a_resume_neither_forgets_nor_repeats(caplog: pytest.LogCaptureFixture) -> None:
    first = CollapseWarnings(window=2)
    run(first, [WELL] * 2 + [WELL | {"rollout/truncated": 1.0}] * 2)
    assert len(caplog.records) == 1
    second = CollapseWarnings(window=2)
    second.load_state_dict(first.state_dict())
    run(second, [WELL | {"rollout/truncated": 1.0, "policy/entropy": 0.01}] * 2, start=4)
    assert [r.getMessage().split(": ")[0] for r in caplog.records] == ["iteration 3", "iteration 6"]
    assert "entropy" in caplog.records[1].getMessage()
