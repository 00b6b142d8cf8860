"""The reset of metrics before each iteration."""

from typing import Any

from lightning import Callback, LightningModule, Trainer


class FreshMetrics(Callback):
    """Drops what was logged in the iteration before, so that a metric without a value is not logged.

    Lightning resets its metrics at the end of an epoch, and a run is one endless epoch: it would log the last value of
    each again and again. Evaluations stay among ``callback_metrics``: they are rare, and logged when they are made.
    Every run has this callback, before all others.
    """

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Runs before anything is logged."""
        results = trainer._results
        assert results is not None
        results.reset()  # all of them are invalid until they are logged again
        for metrics in (trainer.callback_metrics, trainer.logged_metrics):
            for tag in [tag for tag in metrics if not tag.startswith("eval/")]:
                del metrics[tag]
