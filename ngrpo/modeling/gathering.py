"""FSDP2 with one gathering of weights and one sum of gradients for several passes, in place of one for each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch.distributed.fsdp import FSDPModule

from ngrpo.modeling.policy import ScoringModel

Parts = Sequence[list[int]]
InTurn = Callable[[Parts], Iterator[list[int]]]


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
