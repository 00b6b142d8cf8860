"""The tensors that a call writes into, seen by PyTorch's own count of changes in place, and by copies."""

from collections.abc import Callable, Mapping

from torch import Tensor

_COPIED_BYTES = 16 << 20
"""Largest tensor of which a copy is compared."""


def watch(tensors: Mapping[str, Tensor]) -> Callable[[], list[str]]:
    """Returns a function that names those of the tensors, or of what shares their memory, written into since.

    A write through ``.data`` is not counted, and none in inference mode: these are seen where they change a tensor of
    `_COPIED_BYTES` at most.

    Args:
        tensors: any, by name.
    """
    counts = {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items() if tensor.nbytes <= _COPIED_BYTES}

    def written() -> list[str]:
        counted = {name for name, count in counts.items() if tensors[name]._version != count}
        return [
            name
            for name, tensor in tensors.items()
            if name in counted or (name in copies and not _same(copies[name], tensor))
        ]

    return written


def _same(before: Tensor, after: Tensor) -> bool:
    """Says whether all numbers are equal, a NaN and another among them."""
    return bool(((before == after) | (before.isnan() & after.isnan())).all())
