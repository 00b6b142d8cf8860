"""Other roundings of the same computation: TF32, and numbers moved to their neighbours."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_SEED = 20
_MOVED = 1 / 16
"""Fraction of the numbers that another batching rounds otherwise."""


@contextmanager
def in_tf32() -> Iterator[None]:
    """Multiplies float32 numbers in TF32 meanwhile, on GPUs that have it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def rounded_anew(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Moves some of the numbers that the innermost modules return to the next one of a dtype.

    Kernels that add up in another order do so; a CPU, or a small model, may use the same one for every batch.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(_SEED)

    def anew(module: nn.Module, inputs: object, output: object) -> object:
        if not isinstance(output, Tensor):
            return output
        chosen = torch.rand(output.shape, generator=generator, device=device) < _MOVED
        # Somewhat more than half the largest distance of neighbours: less would be rounded back.
        moved = output.float() * (1 + 0.6 * torch.finfo(dtype).eps * chosen)
        return moved.to(output.dtype)

    inner = [module for module in model.modules() if not any(True for _ in module.children())]
    handles = [module.register_forward_hook(anew) for module in inner]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
