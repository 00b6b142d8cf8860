"""Of each iteration Lightning logs what was logged in it, and nothing of those before."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader

from ngrpo.callbacks.fresh_metrics import FreshMetrics
from ngrpo.loggers.csv import Csv


class Sometimes(Callback):
    """Logs before the step, as callbacks do here, every third time; keeps what other callbacks are told."""

    def __init__(self) -> None:
        self.told: list[dict[str, float]] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx % 3 == 0:
            pl_module.log("before/some", 10.0 + batch_idx, batch_size=1)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.told.append({tag: float(value) for tag, value in trainer.callback_metrics.items()})
        if batch_idx == 0:
            trainer.callback_metrics["eval/mean@1"] = torch.tensor(0.5)


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.log("step/every", float(batch_idx), batch_size=1)
        if batch_idx in (1, 4):
            self.log_dict({"step/some": 20.0 + batch_idx}, batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.weight], lr=0.1)


def fit(folder: Path, *callbacks: Callback) -> list[dict[str, float]]:
    """Runs five iterations; returns the rows that the logger wrote."""
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=1, log_every_n_steps=1, logger=Csv(str(folder), "csv", ""),
        callbacks=list(callbacks), enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(torch.zeros(5, 1)))
    with (folder / "csv" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{tag: float(row[tag]) for tag in sorted(row) if "/" in tag and row[tag]} for row in rows]


EXPECTED = [
    {"before/some": 10.0, "step/every": 0.0},
    {"step/every": 1.0, "step/some": 21.0},
    {"step/every": 2.0},
    {"before/some": 13.0, "step/every": 3.0},
    {"step/every": 4.0, "step/some": 24.0},
]


@pytest.mark.filterwarnings("ignore")
def test_a_metric_without_a_value_is_not_logged_and_not_told(tmp_path: Path) -> None:
    some = Sometimes()
    assert fit(tmp_path, FreshMetrics(), some) == EXPECTED
    evaluated = {"eval/mean@1": 0.5}
    assert some.told == [EXPECTED[0], *(one | evaluated for one in EXPECTED[1:])]


@pytest.mark.filterwarnings("ignore")
def test_lightning_alone_logs_the_last_value_again(tmp_path: Path) -> None:
    """Should this fail, the callback is no longer needed."""
    assert fit(tmp_path, Sometimes())[2]["before/some"] == 10.0
