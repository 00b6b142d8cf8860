"""The run's summary.json, and the closing table on the terminal."""

import json
import time
from pathlib import Path
from typing import Any

from lightning import Callback, LightningDataModule, LightningModule, Trainer
from rich import get_console
from rich.table import Table

from ngrpo.callbacks.evaluation import evaluation_results
from ngrpo.callbacks.rollout import rollout_callback
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.evaluation.table_rows import table_rows
from ngrpo.types.problems import PromptBatch
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.numbers import fixed
from ngrpo.utils.provenance import git_commit, versions


class Summary(Callback):
    """Writes what the run was and what it reached, after each evaluation and at the end.

    Place it after the evaluation callback.

    Args:
        run_dir: the run's folder.
        datamodule: counts the rows it left out.
        methods: names of the methods in use, e.g. {"algo": "gspo", "exploration": "neighbor"}.
        seed: the run's seed.
    """

    def __init__(self, run_dir: Path, datamodule: LightningDataModule, methods: dict[str, str], seed: int) -> None:
        self.run_dir = run_dir
        self.datamodule = datamodule
        self.methods = methods
        self.seed = seed
        self._earlier_s = 0.0
        self._start = time.monotonic()
        self._written = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the state before training."""
        self._write(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Writes if there is a new evaluation."""
        if len(evaluation_results(trainer)) != self._written:
            self._write(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the final state and prints the table."""
        self._write(trainer)
        if trainer.is_global_zero:
            get_console().print(closing_table(evaluation_results(trainer), self.methods))
            left_out = ", ".join(f"{count} {reason}" for reason, count in self._left_out(trainer).items())
            get_console().print(f"rows left out: {left_out or 'none'}; run folder {self.run_dir}", soft_wrap=True)

    def _write(self, trainer: Trainer) -> None:
        results = evaluation_results(trainer)
        self._written = len(results)
        if not trainer.is_global_zero:
            return
        rollouts = rollout_callback(trainer)
        summary = {
            "eval": {
                "before": results[0].metrics if results else None,
                "after": results[-1].metrics if len(results) > 1 else None,
                "history": [{"iteration": r.iteration, **r.metrics} for r in results],
            },
            "iterations": rollouts.iterations_done,
            "tokens_generated": rollouts.tokens_generated,
            "wall_s": self.wall_s,
            "rows_left_out": self._left_out(trainer),
            "seed": self.seed,
            "methods": self.methods,
            "git_commit": git_commit(),
            "versions": versions(),
        }
        write_text(self.run_dir / "summary.json", json.dumps(summary, indent=2) + "\n")

    def _left_out(self, trainer: Trainer) -> dict[str, int]:
        unparsable = rollout_callback(trainer).unparsable_references
        met = {"unparsable_reference": unparsable} if unparsable else {}
        return self.datamodule.rows_left_out | met

    @property
    def wall_s(self) -> float:
        """Seconds since the run was set up, those before a resume included."""
        return self._earlier_s + time.monotonic() - self._start

    def state_dict(self) -> dict[str, Any]:
        """Holds the time spent."""
        return {"wall_s": self.wall_s}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the time spent."""
        self._earlier_s = state_dict["wall_s"]


def closing_table(results: list[EvaluationResult], methods: dict[str, str]) -> Table:
    """Returns a row a metric, a column before, after and the difference."""
    table = Table(title=" ".join(f"{group}={name}" for group, name in methods.items()))
    if not results:
        table.add_column("no evaluation: set data.eval_path to held-out problems")
        return table
    before, after = results[0], results[-1]
    for heading in ("held-out", f"iteration {before.iteration}", f"iteration {after.iteration}", "change"):
        table.add_column(heading, justify="right")
    for name in table_rows(after.metrics):
        old, new = before.metrics[name], after.metrics[name]
        table.add_row(name, fixed(old), fixed(new), fixed(new - old, signed=True))
    return table
