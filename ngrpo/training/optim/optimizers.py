"""Optimisers beside PyTorch's own."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from ngrpo.utils.optional_packages import require


@dataclass(frozen=True)
class EightBitAdamW:
    """Makes torchao's AdamW with block-wise 8-bit moments (Dettmers et al., arXiv 2110.02861).

    Raises:
        SettingError: torchao is not installed.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        require("torchao", "trainer/optimizer=adamw_8bit")

    def __call__(self, parameters: Iterable[Any]) -> Optimizer:
        """Returns an optimiser over parameters or groups of them; tensors below 4096 numbers keep float32 moments."""
        from torchao.optim import AdamW8bit

        made: Optimizer = AdamW8bit(parameters, lr=self.lr, betas=tuple(self.betas), weight_decay=self.weight_decay)
        return made
