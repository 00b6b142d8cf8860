"""The torch engine's key/value cache: preallocated, one slot a rollout, with attention for prefill and decode."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PretrainedConfig, PreTrainedModel

from ngrpo.modeling.attention import PackedAttention
from ngrpo.modeling.exact.causal_attention import exact_decode_attention
from ngrpo.modeling.exact.model import is_exact


class SlotCache:
    """Keys and values of S slots of L positions; ``data`` is [layers, 2, S, H_kv, L, D]."""

    def __init__(self, config: PretrainedConfig, slots: int, length: int, like: Tensor) -> None:
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, slots, config.num_key_value_heads, length, head_size)
        # Zeros, not empty: a masked position has weight 0, and 0 x NaN would still be NaN.
        self.data = torch.zeros(shape, dtype=like.dtype, device=like.device)

    def fits(self, slots: int, length: int) -> bool:
        """Tells whether the cache has so many slots and positions."""
        return self.data.shape[2] >= slots and self.data.shape[4] >= length

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copies whole slots; int64 [m] each."""
        self.data[:, :, target] = self.data[:, :, source]


class PrefillAttention(PackedAttention):
    """Packed causal attention that also writes each prompt's keys and values to its slots.

    Args:
        cache: the cache.
        lengths: tokens of each distinct prompt in the packed row.
        slots: for each prompt the slots of all rollouts that start with it.
    """

    def __init__(self, cache: SlotCache, lengths: list[int], slots: list[Tensor]) -> None:
        super().__init__(lengths, cache.data.device)
        self.lengths = lengths
        self.cache = cache
        self.slots = slots

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends inside each prompt."""
        keys, values = self.cache.data[module.layer_idx]
        for k, v, slots in zip(
            torch.split(key[0], self.lengths, 1), torch.split(value[0], self.lengths, 1), self.slots, strict=True
        ):
            keys[slots, :, : k.shape[1]] = k
            values[slots, :, : v.shape[1]] = v
        return super().attend(module, query, key, value, scale)


class DecodeAttention:
    """One new token in each of the first R slots, attending to what its slot holds.

    Args:
        cache: the cache.
        positions: absolute position of each new token; int64 [R].
    """

    def __init__(self, cache: SlotCache, positions: Tensor) -> None:
        self.data = cache.data
        self.positions = positions
        past = torch.arange(int(positions.max()) + 1, device=positions.device)
        self.visible = (past <= positions[:, None])[:, None, None, :]

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends."""
        if is_exact(module):
            slots = _write(key, value, self.data[module.layer_idx], self.positions)
            return exact_decode_attention(query, *slots, self.positions, scale)
        if torch.compiler.is_compiling():
            where = self.data, module.layer_number, self.positions, self.visible
            output: Tensor = slot_attention(query, key, value, *where, scale)
            return output
        return _attend(query, key, value, self.data[module.layer_idx], self.positions, self.visible, scale)


def number_layers(model: PreTrainedModel) -> None:
    """Gives attention modules their number as a tensor too: code that reads the integer is compiled once a layer."""
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            module.layer_number = torch.tensor(module.layer_idx)


def _write(key: Tensor, value: Tensor, slots: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Writes keys and values [R, H_kv, 1, D] to a layer's slots; returns those of all slots, [S, H_kv, L, D]."""
    keys, values = slots
    at = torch.arange(len(positions), device=positions.device)
    keys[at, :, positions] = key[:, :, 0]
    values[at, :, positions] = value[:, :, 0]
    return keys, values


def _attend(
    query: Tensor, key: Tensor, value: Tensor, slots: Tensor, positions: Tensor, visible: Tensor, scale: float
) -> Tensor:
    """Writes keys and values [R, H_kv, 1, D] to a layer's slots, and attends for queries [R, H, 1, D].

    The query heads that share a key head are treated as its query positions.
    """
    rows, heads, _, size = query.shape
    keys, values = _write(key, value, slots, positions)
    length = visible.shape[-1]
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    past_keys, past_values = keys[:rows, :, :length], values[:rows, :, :length]
    output = scaled_dot_product_attention(grouped, past_keys, past_values, attn_mask=visible, scale=scale)
    return output.reshape(query.shape)


# One operator to the compiler, which would copy the cache to write into it.
@torch.library.custom_op("ngrpo::slot_attention", mutates_args={"data"})
def slot_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    data: Tensor,
    layer: Tensor,
    positions: Tensor,
    visible: Tensor,
    scale: float,
) -> Tensor:
    """See `DecodeAttention`; ``layer`` is an int64 scalar in host memory."""
    return _attend(query, key, value, data[int(layer)], positions, visible, scale)


@slot_attention.register_fake
def _(query: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape)
