"""The torch engine's key/value cache: preallocated, one slot a running rollout, and the two passes that use it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PretrainedConfig

from ngrpo.modeling.attention import PackedAttention


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
    """Packed causal attention that also files each prompt's keys and values in its slots.

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
        self.cache = cache
        self.positions = positions
        self.rows = torch.arange(len(positions), device=positions.device)
        self.length = int(positions.max()) + 1
        visible = torch.arange(self.length, device=positions.device) <= positions[:, None]
        self.visible = visible[:, None, None, :]

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends; the query heads that share a key head are treated as its query positions."""
        keys, values = self.cache.data[module.layer_idx]
        keys[self.rows, :, self.positions] = key[:, :, 0]
        values[self.rows, :, self.positions] = value[:, :, 0]
        rows, heads, _, size = query.shape
        grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
        past_keys, past_values = keys[:rows, :, : self.length], values[:rows, :, : self.length]
        output = scaled_dot_product_attention(grouped, past_keys, past_values, attn_mask=self.visible, scale=scale)
        return output.reshape(query.shape)
