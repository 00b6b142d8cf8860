"""Decoder layers whose matrix products are split over the ranks of a tensor-parallel group.

Megatron's scheme (arXiv 1909.08053): heads and the middle of the feed-forward network are split, so that attention and
feed-forward need one sum over the group each, forward and backward. Embedding, layer norms and head stay whole, and so
do states between layers: all ranks of a group compute the same there, and get the same gradients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import PretrainedConfig

from ngrpo.errors import SettingError

SETTING = "trainer.tensor_parallel_size"

_LAYERS = "layers.*."
_HEADS = 2
"""Dimension of the heads where queries and keys are normalised, [B, T, H, D]."""

_STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    # One weight for all heads, of which each rank has some: its gradient is a sum over the group.
    "replicated_with_grad_allreduce": partial(SequenceParallel, sequence_dim=_HEADS, use_local_output=True),
}
"""By the names that transformers' plans use."""

# One sum over the group for the gradient of what enters, not one for each product that reads it.
_ENTRIES: dict[str, Callable[[], ParallelStyle]] = {
    "self_attn": partial(
        PrepareModuleInput,
        input_kwarg_layouts={"hidden_states": Replicate()},
        desired_input_kwarg_layouts={"hidden_states": Replicate()},
    ),
    "mlp": partial(PrepareModuleInput, input_layouts=Replicate(), desired_input_layouts=Replicate()),
}
"""By the names of a decoder layer's parts, with how they are called."""


def split_layer(layer: nn.Module, mesh: DeviceMesh, config: PretrainedConfig) -> None:
    """Keeps this rank's part of a decoder layer's products; what the layer computes stays.

    Args:
        layer: of a transformers model, on every rank the same weights.
        mesh: one-dimensional, the ranks of the tensor-parallel group.
        config: of the model; checked by `check_split`.
    """
    plan = {name: make() for name, make in _ENTRIES.items()}
    plan |= {name: _STYLES[style]() for name, style in _plan(config).items()}
    trained = any(parameter.requires_grad for parameter in layer.parameters())
    parallelize_module(layer, mesh, plan, src_data_rank=None)
    layer.requires_grad_(trained)  # replicas are made as if they were


def check_split(config: PretrainedConfig, size: int) -> None:
    """Refuses models that cannot be split over so many ranks.

    Raises:
        SettingError: heads or the feed-forward network do not divide, or transformers has no plan for the model that is
            understood here.
    """
    if size == 1:
        return
    plan = _plan(config)
    if set(plan.values()) - _STYLES.keys() or {name.partition(".")[0] for name in plan} != _ENTRIES.keys():
        raise SettingError(
            f"{SETTING}={size} splits models such as Qwen2, Qwen3 or Llama, and model.path={config._name_or_path} is "
            f"of type {config.model_type}; set {SETTING}=1."
        )
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if getattr(config, name) % size:
            raise SettingError(
                f"{SETTING}={size} does not divide the model's {name}={getattr(config, name)}; choose a common divisor "
                "of heads, key-value heads and intermediate size."
            )


def _plan(config: PretrainedConfig) -> dict[str, Any]:
    """Returns how each product of a decoder layer is split, by its name in the layer."""
    plan: dict[str, str] = getattr(config, "base_model_tp_plan", None) or {}
    return {name.removeprefix(_LAYERS): style for name, style in plan.items() if name.startswith(_LAYERS)}
