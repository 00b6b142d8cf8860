"""The norm of a gradient whose parts lie on different meshes."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

T = TypeVar("T", bound=Tensor)


def by_mesh(tensors: Iterable[T]) -> list[list[T]]:
    """Sorts tensors by the mesh that they are sharded over, in order of appearance; operators take those of one only.

    Under tensor parallelism there are two: the products of the decoder layers are split over the tensor group too.
    """
    groups: dict[DeviceMesh | None, list[T]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device_mesh if isinstance(tensor, DTensor) else None, []).append(tensor)
    return list(groups.values())


def total_norm(groups: Sequence[Sequence[Tensor]]) -> Tensor:
    """Returns the 2-norm of all tensors together, each counted once whatever mesh it is on (a collective).

    Args:
        groups: from `by_mesh`.

    Returns:
        A scalar of the first tensor's dtype; 0 without any.
    """
    norms = [get_total_norm(group) for group in groups]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    return whole[0] if len(whole) == 1 else get_total_norm(whole)


def clip(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Scales the gradients down to a norm of at most ``limit``; returns the norm before (a collective)."""
    parameters = list(parameters)
    groups = by_mesh(p.grad for p in parameters if p.grad is not None)
    norm = total_norm(groups)
    for group in by_mesh(p for p in parameters if p.grad is not None):
        clip_grads_with_norm_(group, limit, norm)
    return norm
