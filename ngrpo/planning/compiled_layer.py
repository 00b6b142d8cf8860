"""The bytes that a compiled layer keeps for its backward pass: the compiler's own choice, on the meta device."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves
from transformers import PretrainedConfig

from ngrpo.modeling.layers import prepare_layers
from ngrpo.planning.meta_model import meta_model
from ngrpo.planning.stand_ins import AllocatedAttention

_PARTITIONED = "aot_eager_decomp_partition"
"""PyTorch's backend that divides a layer into forward and backward as Inductor does, and compiles neither."""


def kept_by_compiled_layer(config: PretrainedConfig, checkpointing: str, tokens: int, dtype: torch.dtype) -> int:
    """Returns the bytes that one compiled layer keeps of so many tokens, weights excluded; takes some 10 seconds.

    Args:
        config: the architecture of what one rank holds.
        checkpointing: a key of `ngrpo.modeling.layers.CHECKPOINTING`; with "full" it is what the layer keeps
            while it is made again.
        tokens: of the pass.
        dtype: of the computation.
    """
    kept = "off" if checkpointing == "full" else checkpointing
    per_token = _kept_per_token(copy_of_one_layer(config), kept, dtype)
    return per_token * tokens


def copy_of_one_layer(config: PretrainedConfig) -> PretrainedConfig:
    """Returns the architecture with a single layer and a small vocabulary."""
    one = copy.deepcopy(config)
    one.num_hidden_layers, one.vocab_size, one.pad_token_id = 1, 8, None
    if getattr(one, "layer_types", None):
        one.layer_types = one.layer_types[:1]
    return one


_TOKENS = 1024


def _kept_per_token(config: PretrainedConfig, checkpointing: str, dtype: torch.dtype) -> int:
    base: Any = meta_model(config, dtype).lm.base_model
    layer = base.layers[0]
    prepare_layers(base.layers, checkpointing, compiled=True, backend=_PARTITIONED)
    kept = _Kept(layer)
    numbers = torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta")
    inputs = torch.zeros(1, _TOKENS, config.hidden_size, dtype=dtype, device="meta", requires_grad=True)
    try:
        with saved_tensors_hooks(kept.add, lambda tensor: tensor):
            made = base(inputs_embeds=inputs, position_ids=numbers, use_cache=False, plan=AllocatedAttention())
    finally:
        torch._dynamo.reset()
    del made
    return sum(kept.storages.values()) // _TOKENS


class _Kept:
    """Sizes of what is kept inside one layer by address; not its weights, nor what it shares with other layers."""

    def __init__(self, layer: nn.Module) -> None:
        self.storages: dict[int, int] = {}
        self._shared = {_address(parameter) for parameter in layer.parameters()}
        self._inside = False
        layer.register_forward_pre_hook(self._enter, with_kwargs=True)
        layer.register_forward_hook(self._leave)

    def add(self, tensor: Tensor) -> Tensor:
        if self._inside and _address(tensor) not in self._shared:
            self.storages[_address(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    def _enter(self, layer: nn.Module, states: tuple[Tensor, ...], others: dict[str, Any]) -> None:
        self._inside = True
        self._shared |= {_address(one) for one in tree_leaves(others) if isinstance(one, Tensor)}
        self._shared -= {_address(one) for one in states}

    def _leave(self, *_: Any) -> None:
        self._inside = False


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
