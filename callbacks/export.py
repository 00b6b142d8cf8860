"""The trained policy as a Hugging Face folder."""

from pathlib import Path
from typing import Any

from lightning import Callback, Trainer

from ngrpo.modeling.export import Weights, export
from ngrpo.modeling.loading import ModelSource
from ngrpo.module import PolicyOptimization


class Export(Callback):
    """Writes ``model/`` in the run's folder when training ends.

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
        model = {name: tensor.cpu() for name, tensor in pl_module.policy_weights()}
        learned = {name: tensor.cpu() for name, tensor in pl_module.learned_exploration().items()}
        if trainer.is_global_zero:
            export(self.source, self.tokenizer, Weights(model, learned), self.run_dir / "model")
        trainer.strategy.barrier()
