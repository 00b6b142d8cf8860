"""FSDP2 for the scoring models, and whole tensors out of sharded parameters."""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from ngrpo.modeling.lora import LoraSettings, merged
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.tensor_parallel import split_layer

Model = TypeVar("Model", bound=ScoringModel)


def shard(model: Model, mesh: DeviceMesh, mixed_in: torch.dtype | None, offload: bool = False) -> Model:
    """Shards each decoder layer, and the rest (embedding, final norm, head) with the root.

    Args:
        model: on every rank the same weights.
        mesh: with the dimensions ``data_parallel``, over which everything is sharded, and ``tensor_parallel``, over
            which the products of the decoder layers are split; see `ngrpo.modeling.tensor_parallel`.
        mixed_in: gather and compute in this dtype; shards, gradients and their sum over the ranks keep the
            parameters', float32 as a rule. None computes in the parameters' too.
        offload: keep the shards in host memory; FSDP2 fetches a layer's when it is due. Of no use on a CPU.
    """
    policy = MixedPrecisionPolicy()
    if mixed_in is not None:
        policy = MixedPrecisionPolicy(mixed_in, torch.float32, cast_forward_inputs=False)
    home = CPUOffloadPolicy() if offload and mesh.device_type != "cpu" else OffloadPolicy()
    data, tensor = mesh["data_parallel"], mesh["tensor_parallel"]
    for layer in model.lm.base_model.layers:
        if tensor.size() > 1:
            split_layer(layer, tensor, model.lm.config)
        fully_shard(layer, mesh=data, mp_policy=policy, offload_policy=home)
    if any(True for _ in model.learned.parameters()):
        # In a group of its own, for its dtype; its output are the parameters, which must outlast its forward.
        fully_shard(model.learned, mesh=data, reshard_after_forward=False, offload_policy=home)
    fully_shard(model, mesh=data, mp_policy=policy, offload_policy=home)
    register_fsdp_forward_method(model, "run")
    return model


def full(tensor: Tensor) -> Tensor:
    """Returns the whole tensor of a sharded one (a collective), any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Returns this rank's share of a sharded tensor, any other as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def named_weights(model: ScoringModel, lora: LoraSettings | None) -> Iterator[tuple[str, Tensor]]:
    """Yields (transformers name, whole tensor), adapters merged, tied weights once; every rank walks it to the end."""
    return merged({name: parameter.detach() for name, parameter in model.lm.named_parameters()}, lora, full)


def named_learned(model: ScoringModel) -> dict[str, Tensor]:
    """Returns the exploration strategy's learned parameters, whole (a collective when sharded)."""
    return {name: full(parameter.detach()) for name, parameter in model.learned.named_parameters()}
