"""The states of all global random generators, in checkpoints."""

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.types.problems import PromptBatch


class RandomState(Callback):
    """Keeps Python's, NumPy's, PyTorch's and the devices' generators of each rank over a resume.

    The framework's own draws are functions of keys; this is for strategies, rewards and callbacks from outside. Place
    it first: the states return at the first iteration, since starting engines and evaluating may draw.
    """

    def __init__(self) -> None:
        self._ranks: list[dict[str, Any]] | None = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Puts back this rank's states, once."""
        if self._ranks is not None:
            _restore(self._ranks[trainer.global_rank])
            self._ranks = None

    def state_dict(self) -> dict[str, Any]:
        """Holds the states of all ranks, primitives and tensors only (a collective)."""
        return {"ranks": gathered_everywhere(_present())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps them until training begins."""
        self._ranks = state_dict["ranks"]


def _present() -> dict[str, Any]:
    kind, numbers, *rest = np.random.get_state(legacy=True)
    # Where CUDA has not been started nothing was drawn, and asking would start it.
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": (kind, [int(number) for number in numbers], *rest),
        "torch": torch.get_rng_state(),
        "cuda": [state.cpu() for state in torch.cuda.get_rng_state_all()] if started else [],
    }


def _restore(state: dict[str, Any]) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, words, *rest = state["numpy"]
    np.random.set_state((kind, np.array(words, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    for number, own in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):  # there may be fewer now
        torch.cuda.set_rng_state(own, number)
