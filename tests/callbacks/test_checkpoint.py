"""Which iterations are saved and which of them are kept."""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_run import batch, trainer
from lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader

from ngrpo.callbacks.checkpoint import IterationCheckpoint
from ngrpo.callbacks.evaluation import Evaluation
from ngrpo.checkpoint.folders import complete_checkpoints, iteration_of
from ngrpo.checkpoint.manifest import read, verify
from ngrpo.config.schema import TrainerConfig
from ngrpo.entrypoints.trainer import make_trainer
from ngrpo.errors import RunError, SettingError


def save(path: Path, weights_only: bool) -> None:
    """Stands for the trainer's: the state is the name of the folder it was written to."""
    assert path.parent.name.endswith(".tmp")
    assert not weights_only
    path.write_text(path.parent.name)


def run(folder: Path, iterations: int, stop_at: int | None = None, **settings: int) -> list[int]:
    """Returns the iterations whose checkpoints are there in the end."""
    callback = IterationCheckpoint(folder, {"algo": "grpo"}, **settings)
    made = trainer(save_checkpoint=save)
    callback.setup(made, None, "fit")
    for iteration in range(iterations):
        made.should_stop = iteration + 1 == stop_at
        callback.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(iteration), 0)
    return [iteration_of(found) for found in complete_checkpoints(folder)]


@pytest.mark.parametrize(
    ("every", "keep", "expected"),
    [(2, 100, [2, 4, 6, 8, 10]), (2, 2, [8, 10]), (3, 2, [6, 9]), (1, 1, [10]), (0, 2, []), (20, 1, [])],
)
def test_every_and_keep(tmp_path: Path, every: int, keep: int, expected: list[int]):
    assert run(tmp_path, 10, every=every, keep=keep) == expected


def test_the_last_iteration_is_saved_too(tmp_path: Path):
    assert run(tmp_path, 7, stop_at=7, every=3, keep=3) == [3, 6, 7]


def test_no_checkpoints_at_all_with_0(tmp_path: Path):
    assert run(tmp_path, 4, stop_at=4, every=0) == []
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_stays_behind_and_the_pointer_names_the_newest(tmp_path: Path):
    run(tmp_path, 6, every=2, keep=2)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"iteration-4", "iteration-6", "latest"}
    assert (tmp_path / "checkpoints" / "latest").read_text() == "iteration-6"


def test_an_iteration_that_was_saved_before_is_replaced(tmp_path: Path):
    leftover = tmp_path / "checkpoints" / "iteration-2.tmp"
    leftover.mkdir(parents=True)
    (leftover / "half").touch()
    assert run(tmp_path, 2, every=2) == run(tmp_path, 2, every=2) == [2]
    folder = tmp_path / "checkpoints" / "iteration-2"
    assert {path.name for path in folder.iterdir()} == {"state.ckpt", "manifest.json"}
    assert read(folder).run == {"algo": "grpo"}


def test_what_was_just_published_stays_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert run(tmp_path, 4, every=2, keep=2) == [2, 4]
    monkeypatch.setattr("ngrpo.checkpoint.manifest.time.time_ns", lambda: 1)
    assert run(tmp_path, 8, every=8, keep=2) == [4, 8]
    assert run(tmp_path, 4, every=4, keep=1) == [4]  # the same iterations once more
    assert (tmp_path / "checkpoints" / "latest").read_text() == "iteration-4"
    assert read(tmp_path / "checkpoints" / "iteration-4").sequence == 4


def test_outdated_links_are_taken_away_and_what_they_lead_to_is_not(tmp_path: Path):
    run(tmp_path / "other", 1, every=1)
    (other,) = complete_checkpoints(tmp_path / "other")
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "iteration-1").symlink_to(other, target_is_directory=True)
    assert run(tmp_path / "run", 3, every=1, keep=2) == [2, 3]
    assert not os.path.lexists(folder / "iteration-1")
    verify(other, read(other))


def watched(folder: Path, values: list[float | None], closing: float | None = None, **settings) -> list[int]:
    """Runs with a metric that has these values (None: not evaluated); returns the iterations kept."""
    callback = IterationCheckpoint(folder, {}, **({"every": 3, "keep": 1, "monitor": "eval/mean@1"} | settings))
    made = trainer(save_checkpoint=save)
    # The evaluation before the training is not one of iteration 1.
    made.callback_metrics.update({"eval/mean@1": torch.tensor(0.99), "train/reward": torch.tensor(0.0)})
    for iteration, value in enumerate(values):
        callback.on_train_batch_start(made, None, batch(iteration), 0)
        if value is not None:
            made.callback_metrics["eval/mean@1"] = torch.tensor(value)
        made.should_stop = iteration + 1 == len(values)
        callback.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(iteration), 0)
    if closing is not None:
        made.callback_metrics["eval/mean@1"] = torch.tensor(closing)
    callback.on_train_end(made, None)
    return [iteration_of(found) for found in complete_checkpoints(folder)]


def best(folder: Path) -> tuple[str, float]:
    found = json.loads((folder / "checkpoints" / "best.json").read_text())
    assert found["monitor"] == "eval/mean@1"
    return found["checkpoint"], pytest.approx(found["value"])


@pytest.mark.parametrize(
    ("values", "mode", "kept", "name", "value"),
    [
        ([0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2], "max", [2, 7], "iteration-2", 0.3),
        ([0.1, 0.3, 0.2, 0.2, 0.4, 0.2, 0.2], "max", [5, 7], "iteration-5", 0.4),
        ([0.3, 0.1, 0.2, 0.2, 0.4, 0.2, 0.2], "min", [2, 7], "iteration-2", 0.1),
        ([None, 0.3, None, None, 0.3, None, None], "max", [2, 7], "iteration-2", 0.3),
        ([0.1, 0.2, 0.3, 0.4], "max", [4], "iteration-4", 0.4),
        ([math.nan, 0.2, math.nan], "max", [2, 3], "iteration-2", 0.2),
    ],
)
def test_the_best_is_kept_beside_the_last(tmp_path: Path, values, mode: str, kept: list[int], name: str, value: float):
    assert watched(tmp_path, values, mode=mode) == kept
    assert best(tmp_path) == (name, value)


def test_an_evaluation_after_the_last_checkpoint_counts_for_it(tmp_path: Path):
    assert watched(tmp_path, [None, 0.3, None, None], closing=0.5) == [2, 4]
    assert best(tmp_path) == ("iteration-4", 0.5)


def test_the_record_holds_over_resumes_and_not_for_another_metric(tmp_path: Path):
    watched(tmp_path, [0.1, 0.5, 0.2])
    monitor = IterationCheckpoint(tmp_path, {}, monitor="eval/mean@1").best
    assert monitor.record(tmp_path).value == pytest.approx(0.5)
    assert IterationCheckpoint(tmp_path, {}, monitor="eval/mean@1", mode="min").best.record(tmp_path) is None
    assert IterationCheckpoint(tmp_path, {}, monitor="train/reward").best.record(tmp_path) is None


@pytest.mark.parametrize("value", [0.4, 0.6])
def test_the_record_of_another_evaluation_is_none_and_its_checkpoint_stays_until_there_is_one(
    tmp_path: Path, value: float
):
    """Figures of other problems are neither beaten nor do they beat."""

    def checkpoint(samples: int, iteration: int, value: float) -> list[int]:
        evaluation = Evaluation(None, SimpleNamespace(eval_prompts=list), samples)  # type: ignore[arg-type]
        made = trainer(callbacks=[evaluation], save_checkpoint=save)
        made.callback_metrics["eval/mean@1"] = torch.tensor(value)
        callback = IterationCheckpoint(tmp_path, {}, every=1, keep=1, monitor="eval/mean@1")
        callback.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(iteration), 0)
        return [iteration_of(found) for found in complete_checkpoints(tmp_path)]

    assert checkpoint(4, 0, 0.5) == [1]
    assert checkpoint(4, 1, 0.3) == [1, 2]
    assert checkpoint(8, 2, math.nan) == [1, 3]
    assert checkpoint(8, 3, value) == [4]
    assert best(tmp_path) == ("iteration-4", value)


def test_another_checkpoint_of_the_best_iteration_is_not_the_best(tmp_path: Path):
    watched(tmp_path, [0.1, 0.5, 0.2])
    assert watched(tmp_path, [0.1, 0.3], every=2) == [2]
    assert best(tmp_path) == ("iteration-2", 0.3)  # by the closing evaluation: there is no record left to beat
    save_again = IterationCheckpoint(tmp_path, {}, every=1)
    made = trainer(save_checkpoint=save)
    save_again.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(1), 0)
    assert not (tmp_path / "checkpoints" / "best.json").exists()
    assert watched(tmp_path, [0.1, 0.4], every=9) == [2]
    assert best(tmp_path) == ("iteration-2", 0.4)


def test_with_every_0_only_the_best_are_saved(tmp_path: Path):
    assert watched(tmp_path, [0.1, 0.3, 0.2, 0.2], every=0, keep=1) == [2]


def test_a_metric_that_nobody_logs_is_refused(tmp_path: Path):
    with pytest.raises(SettingError, match=r"monitor=eval/mean@2 is not logged; choose one of eval/mean@1, train/rew"):
        watched(tmp_path, [0.1], monitor="eval/mean@2")
    callback, made = IterationCheckpoint(tmp_path, {}, monitor="eval/mean@2"), trainer(save_checkpoint=save)
    callback.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(0), 0)  # resumed: one may come
    with pytest.raises(SettingError, match=r"callbacks\.checkpoint\.mode=best is not known; choose max or min\."):
        IterationCheckpoint(tmp_path, {}, monitor="eval/mean@1", mode="best")


@pytest.mark.parametrize("settings", [{"every": -1}, {"keep": 0}])
def test_settings_are_checked(tmp_path: Path, settings: dict[str, int]):
    with pytest.raises(SettingError, match=r"callbacks\.checkpoint\.every=-?\d+ .* keep=\d"):
        IterationCheckpoint(tmp_path, {}, **settings)


def test_a_full_disk_leaves_the_old_ones_and_says_so(tmp_path: Path):
    callback = IterationCheckpoint(tmp_path, {}, every=1, keep=1)
    made = trainer(save_checkpoint=save)
    callback.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(0), 0)

    def full(path: Path, weights_only: bool) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    made.save_checkpoint = full
    with pytest.raises(RunError) as caught:
        callback.on_train_batch_end(made, torch.nn.Linear(1, 1), None, batch(1), 0)
    assert str(caught.value) == (
        f"{tmp_path}/checkpoints/iteration-2 could not be written ([Errno 28] No space left on device); free some"
        f" space; the last checkpoint is of iteration 1: resume with ckpt={tmp_path}."
    )
    assert caught.value.everywhere
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"iteration-1", "latest"}


def test_weights_that_are_not_finite_do_not_replace_good_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    callback = IterationCheckpoint(tmp_path, {}, every=1)
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        module.weight[1, 1] = float("nan")
    callback.on_train_batch_end(trainer(save_checkpoint=save), module, None, batch(4), 0)
    assert complete_checkpoints(tmp_path) == []
    assert "no checkpoint of iteration 5: the weights are not finite" in caplog.text


class Counter(Callback):
    """A user's callback with a state of its own; ends the training."""

    def __init__(self) -> None:
        self.iterations = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.iterations += 1
        trainer.should_stop = self.iterations == 3

    def state_dict(self) -> dict[str, Any]:
        return {"iterations": self.iterations}


class OneWeight(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Changes nothing."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.weight], lr=0.1)


def numbered(items: list[int]) -> SimpleNamespace:
    return SimpleNamespace(iteration=items[0])


def test_the_state_of_a_callback_that_is_listed_later_is_of_the_same_iteration(tmp_path: Path):
    config = TrainerConfig(accelerator="cpu", devices=1, num_nodes=1)
    callbacks = [IterationCheckpoint(tmp_path, {}, every=1, keep=3), Counter()]
    made = make_trainer(config, 1, callbacks, logger=[])
    assert made.checkpoint_callbacks == callbacks[:1]  # none of Lightning's own beside it
    made.fit(OneWeight(), DataLoader(range(9), collate_fn=numbered))
    saved = [torch.load(folder / "state.ckpt", weights_only=True) for folder in complete_checkpoints(tmp_path)]
    assert [state["callbacks"]["Counter"]["iterations"] for state in saved] == [1, 2, 3]


def test_without_a_checkpoint_lightning_adds_none_of_its_own():
    config = TrainerConfig(accelerator="cpu", devices=1, num_nodes=1)
    assert make_trainer(config, 1, [Counter()], logger=[]).checkpoint_callbacks == []
