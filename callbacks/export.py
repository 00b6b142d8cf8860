"""The trained policy as a Hugging Face folder."""

from pathlib import Path
from typing import Any

from lightning import Callback, Trainer

from ngrpo.checkpoint.export import Weights, export
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.module import PolicyOptimization
from ngrpo.utils.atomic_write import atomic_folder

FOLDER = "model"


class Export(Callback):
    """Writes ``model/`` in the run's folder when training ends, whole or not at all.

    Args:
        run_dir: the run's folder.
        source: what the policy was loaded from.
        tokenizer: written beside the weights.
    """

    def __init__(self, run_dir: Path, source: ModelSource, tokenizer: Any) -> None:
        self.run_dir = run_dir
        self.source = source
        self.tokenizer = tokenizer

    def on_train_end(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Gathers the weights on all ranks, writes on rank 0."""
        model = {name: tensor.cpu() for name, tensor in pl_module.weights.named_weights()}
        learned = {name: tensor.cpu() for name, tensor in pl_module.weights.learned_exploration().items()}
        if trainer.is_global_zero:
            with atomic_folder(self.run_dir / FOLDER) as folder:
                export(self.source, self.tokenizer, Weights(model, learned), folder)
        trainer.strategy.barrier()
