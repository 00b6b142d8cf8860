"""FSDP2 for the scoring models, and whole tensors out of sharded parameters."""

from collections.abc import Iterator
from typing import TypeVar

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ngrpo.modeling.policy import ScoringModel

Model = TypeVar("Model", bound=ScoringModel)


def shard(model: Model, mesh: DeviceMesh) -> Model:
    """Shards each decoder layer, and the rest (embedding, final norm, head, learned exploration) with the root.

    Args:
        model: on every rank the same weights.
        mesh: one-dimensional, the data-parallel ranks.
    """
    for layer in model.lm.base_model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def full(tensor: Tensor) -> Tensor:
    """Returns the whole tensor of a sharded one (a collective), any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Returns this rank's share of a sharded tensor, any other as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def named_weights(model: ScoringModel) -> Iterator[tuple[str, Tensor]]:
    """Yields (transformers name, whole tensor), tied weights once; every rank must walk it to the end."""
    for name, parameter in model.lm.named_parameters():
        yield name, full(parameter.detach())


def named_learned(model: ScoringModel) -> dict[str, Tensor]:
    """Returns the exploration strategy's learned parameters, whole (a collective when sharded)."""
    return {name: full(parameter.detach()) for name, parameter in model.learned.items()}
