"""The settings of the run, in every logger."""

from collections.abc import Mapping
from typing import Any

from lightning import Callback, LightningModule, Trainer
from omegaconf import OmegaConf

from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.loggers.media import Text
from ngrpo.loggers.media_adapters import log_media


class RunSettings(Callback):
    """Logs the settings as hyperparameters, and as text under ``config``, when training starts or resumes.

    Args:
        settings: the whole configuration as plain values; what came from the environment is its interpolation.
        methods: names of the chosen methods.
    """

    def __init__(self, settings: Mapping[str, Any], methods: Mapping[str, str]) -> None:
        self.settings = settings
        self.methods = methods

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs on rank 0."""
        if not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            logger.log_hyperparams({**self.settings, "methods": dict(self.methods)})
        log_media(trainer, {"config": Text(f"```yaml\n{OmegaConf.to_yaml(dict(self.settings))}```")}, step_of(trainer))


def step_of(trainer: Trainer) -> int:
    """Returns the iterations that a run had finished when it began."""
    return next((c.iterations_done for c in trainer.callbacks if isinstance(c, RolloutCallback)), 0)
