"""FSDP2 with one gathering of weights and one sum of gradients for several passes, in place of one for each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.distributed.fsdp import FSDPModule

from ngrpo.modeling.policy import ScoringModel

Parts = Sequence[list[int]]
InTurn = Callable[[Parts], Iterator[list[int]]]

LARGEST_SHARE = 1 / 6
"""Of a GPU's memory, that `gathers_once` lets whole weights and gradients take."""


def gathers_once(wanted: bool | None, model: ScoringModel, itemsize: int, device: torch.device) -> bool:
    """Says whether to gather once: as is wanted or, with None, where that is a small part of the device's memory.

    Nothing but sizes is asked for, which are the same after a resume, and on every rank whose GPU is as large.

    Args:
        wanted: ``trainer.gather_once``.
        model: that is trained.
        itemsize: bytes of a number in the dtype of the computation.
        device: of this rank. A CPU has no memory of its own to fill.
    """
    if wanted is not None or device.type != "cuda":
        return bool(wanted)
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return gathered_bytes(count, itemsize) <= LARGEST_SHARE * torch.cuda.get_device_properties(device).total_memory


def gathered_bytes(parameters: int, itemsize: int) -> int:
    """Returns the bytes of whole weights in the dtype of the computation and whole gradients in float32."""
    return parameters * (itemsize + torch.float32.itemsize)


@contextmanager
def gathered_once(model: ScoringModel) -> Iterator[InTurn]:
    """Lets a sharded model keep what its passes gather, and its gradients, until the last of them.

    Weights are the same in all passes of an optimiser step, so that nothing but memory is against keeping them: each
    rank holds whole weights in the dtype of the computation and, in a backward pass, whole gradients in float32. A
    model that is not sharded is left as it is. What a forward pass alone gathers stays until `reshard`.

    Yields:
        ``in_turn(parts)``, which yields each pass's part, and prepares the model for the last one's backward pass.
    """
    groups = _groups(model)
    # The root never gives its weights back after a forward pass, for a backward pass begins with them.
    layers = [layer for layer in model.lm.base_model.layers if isinstance(layer, FSDPModule)]

    def keep(kept: bool) -> None:
        for group in groups:
            group.set_reshard_after_backward(not kept, recurse=False)
            group.set_requires_gradient_sync(not kept, recurse=False)

    def in_turn(parts: Parts) -> Iterator[list[int]]:
        for number, part in enumerate(parts, start=1):
            keep(number < len(parts))
            yield part

    for layer in layers:
        layer.set_reshard_after_forward(False, recurse=False)
    try:
        yield in_turn
    finally:
        keep(False)
        for layer in layers:
            layer.set_reshard_after_forward(True, recurse=False)


def reshard(model: ScoringModel) -> None:
    """Frees what is gathered of a sharded model: the root, at least, has embedding and head after a forward pass."""
    for group in _groups(model):
        group.reshard()


def _groups(model: ScoringModel) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
