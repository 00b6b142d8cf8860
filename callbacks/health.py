"""Signs of trouble as metrics: what is warned of once shows at every iteration."""

import logging
from collections import Counter
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from ngrpo.rewards.terms.base import LEFT_OUT
from ngrpo.training.metric_logging import over_processes
from ngrpo.types.problems import PromptBatch
from ngrpo.types.scores import Verdict

LEVELS = {
    "mismatch": "rollout/mismatch_mean",
    "truncated": "rollout/truncated",
    "zero_signal": "train/zero_signal",
    "excluded": f"reward/{LEFT_OUT}",
    "timeouts": f"reward/{Verdict.TIMEOUT}",
    "crashes": f"reward/{Verdict.CRASHED}",
    "unusable_references": f"reward/{Verdict.UNPARSABLE_REFERENCE}",
    "stale_weights": "rollout/age",
    "skipped_steps": "policy/skipped_steps",
}
"""Metrics that show trouble, by the name under ``health/``; 0 is well, but for a little mismatch."""

SOURCES = {
    "memory_warnings": "ngrpo.training.memory_budget",
    "engine_warnings": "ngrpo.rollout",
    "reward_warnings": "ngrpo.rewards",
    "checkpoint_warnings": "ngrpo.callbacks.checkpoint",
}
"""Modules, or packages, whose warnings are counted by themselves, as ``health/NAME``."""

_ENTROPY = "policy/entropy"


class WarningCounter(logging.Handler):
    """Counts the warnings of this program by the module that gives them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Counts one."""
        self.counts[record.name] += 1

    def take(self) -> dict[str, float]:
        """Returns the counts since the last call, by metric; one for all warnings."""
        counts, self.counts = self.counts, Counter()
        found = {
            f"health/{name}": float(sum(n for at, n in counts.items() if f"{at}.".startswith(f"{source}.")))
            for name, source in SOURCES.items()
        }
        return {"health/warnings": float(counts.total()), **found}


class Health(Callback):
    """Logs ``health/*``: levels that are warned of, the share of the first entropy that is left, counts of warnings.

    Warnings are counted over all processes, from the end of one iteration to that of the next. Place it after the
    callbacks that log and that warn.
    """

    def __init__(self) -> None:
        self.counter = WarningCounter()
        self._first_entropy: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begins to count."""
        logging.getLogger("ngrpo").addHandler(self.counter)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Counts no longer."""
        logging.getLogger("ngrpo").removeHandler(self.counter)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs (a collective)."""
        metrics = trainer.callback_metrics
        values = {f"health/{name}": metrics[tag] for name, tag in LEVELS.items() if tag in metrics}
        counts = self.counter.take()
        totals = over_processes(trainer, torch.tensor(list(counts.values())), "sum")
        values |= dict(zip(counts, totals, strict=True))
        if _ENTROPY in metrics:
            entropy = float(metrics[_ENTROPY])
            self._first_entropy = entropy if self._first_entropy is None else self._first_entropy
            if self._first_entropy > 0:
                values["health/entropy_left"] = torch.tensor(entropy / self._first_entropy)
        pl_module.log_dict(values, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        """Holds the first entropy."""
        return {"first_entropy": self._first_entropy}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it."""
        self._first_entropy = state_dict["first_entropy"]
