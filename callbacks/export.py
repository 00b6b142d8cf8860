"""The trained policy as a Hugging Face folder, and on the Hub."""

import logging
from pathlib import Path
from typing import Any

from lightning import Callback, Trainer
from torch import Tensor

from ngrpo.callbacks.evaluation import evaluation_results
from ngrpo.callbacks.rollout import rollout_callback
from ngrpo.checkpoint.export import Weights, export
from ngrpo.checkpoint.hub_push import HubRepository
from ngrpo.errors import first_line
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.model_card import FILE, write_model_card
from ngrpo.report.run_description import RunDescription
from ngrpo.training.module import PolicyOptimization
from ngrpo.utils.atomic_write import atomic_folder

log = logging.getLogger(__name__)

FOLDER = "model"


class Export(Callback):
    """Writes ``model/`` in the run's folder when training ends, whole or not at all; then pushes it, if asked.

    Args:
        run_dir: the run's folder.
        source: what the policy was loaded from.
        tokenizer: written beside the weights.
        description: what the run is, for the model card; None leaves it out.
        push_to: name of a repository on the Hub, ``user/name``; None pushes nowhere.
        private: what the repository is if it is made anew.

    Raises:
        SettingError: ``push_to`` cannot work.
    """

    def __init__(
        self,
        run_dir: Path,
        source: ModelSource,
        tokenizer: Any,
        description: RunDescription | None = None,
        push_to: str | None = None,
        private: bool = True,
    ) -> None:
        self.run_dir = run_dir
        self.source = source
        self.tokenizer = tokenizer
        self.description = description
        self.repository = None if push_to is None else HubRepository(push_to, private)
        if self.repository is not None:
            self.repository.check("callbacks.export.push_to")
        self._written = False

    def on_train_end(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Gathers the weights on all ranks, tensor by tensor; rank 0 keeps them, and writes."""
        model: dict[str, Tensor] = {}
        for name, tensor in pl_module.weights.named_weights():
            if trainer.is_global_zero:  # a whole model for each rank would be more than a machine's memory holds
                model[name] = tensor.cpu()
        learned = {name: tensor.cpu() for name, tensor in pl_module.weights.learned_exploration().items()}
        if trainer.is_global_zero:
            with atomic_folder(self.run_dir / FOLDER) as folder:
                export(self.source, self.tokenizer, Weights(model, learned), folder)
                self._write_card(trainer, folder)
            self._written = True
        trainer.strategy.barrier()

    def _write_card(self, trainer: Trainer, folder: Path) -> None:
        results = evaluation_results(trainer)
        name = None if self.repository is None else self.repository.name
        done = rollout_callback(trainer).iterations_done
        write_model_card(folder, name, self.source.file(FILE), self.description, results, done)

    def on_fit_end(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Pushes on rank 0, after everything of the run is written; a failure is told, and loses nothing."""
        if self.repository is None or not self._written:
            return
        folder = self.run_dir / FOLDER
        try:
            log.info("pushed the model to %s", self.repository.push(folder))
        except Exception as error:  # httpx's or requests', by the version of huggingface_hub
            log.warning(
                "the model is in %s, but was not pushed to %s (%s); push it again: %s",
                folder,
                self.repository.name,
                first_line(error),
                self.repository.command(folder),
            )
