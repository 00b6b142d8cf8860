"""The torch engine's key/value cache: preallocated, one slot a rollout, with attention for prefill and decode."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PretrainedConfig, PreTrainedModel

from ngrpo.modeling.attention import PackedAttention
from ngrpo.modeling.exact.causal_attention import exact_decode_attention
from ngrpo.modeling.exact.model import is_exact
from ngrpo.modeling.varlen import packed_decode

_HALF = (torch.float16, torch.bfloat16)
_WIDEST_HEAD = 256
"""Of the kernel for half precision."""


class SlotCache:
    """Keys and values of S slots of L positions; ``data`` is [layers, 2, S, H_kv, L, D].

    Attributes:
        flash: one kernel reads of each slot what its row has written, and no more. It is there in half precision on
            CUDA; elsewhere all rows read up to the longest, behind a mask.
    """

    def __init__(self, config: PretrainedConfig, slots: int, length: int, like: Tensor) -> None:
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, slots, config.num_key_value_heads, length, head_size)
        self.data = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.flash = like.is_cuda and like.dtype in _HALF and head_size % 8 == 0 and head_size <= _WIDEST_HEAD
        rows = torch.arange(slots + 1, dtype=torch.int32, device=like.device)
        self.starts = torch.stack((rows, rows * (config.num_key_value_heads * length)))

    @property
    def length(self) -> int:
        """L."""
        return self.data.shape[4]

    def fits(self, slots: int, length: int) -> bool:
        """Tells whether the cache has so many slots and positions."""
        return self.data.shape[2] >= slots and self.data.shape[4] >= length

    def clear(self, slots: slice) -> None:
        """Forgets what other rollouts left in slots: a masked position has weight 0, and 0 x NaN would still be NaN.

        Where a kernel reads no more than a row has written, nothing is done.
        """
        if not self.flash:
            self.data[:, :, slots] = 0.0

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
        length: more than the largest of them.
    """

    def __init__(self, cache: SlotCache, positions: Tensor, length: int) -> None:
        self.data = cache.data
        self.positions = positions
        self.flash = cache.flash
        self.reach: tuple[Any, ...]
        if cache.flash:
            self.reach = cache.starts[:, : len(positions) + 1].clone(), length
        else:
            past = torch.arange(length, device=positions.device)
            self.reach = ((past <= positions[:, None])[:, None, None, :],)

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends."""
        if is_exact(module):
            slots = _write(key, value, self.data[module.layer_idx], self.positions)
            return exact_decode_attention(query, *slots, self.positions, scale)
        new, where = (query, key, value), (self.positions, *self.reach, scale)
        if torch.compiler.is_compiling():
            operator: Any = slot_flash_attention if self.flash else slot_attention
            output: Tensor = operator(*new, self.data, module.layer_number, *where)
            return output
        run: Callable[..., Tensor] = _attend_flash if self.flash else _attend
        return run(*new, self.data[module.layer_idx], *where)


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


def _attend_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slots: Tensor,
    positions: Tensor,
    starts: Tensor,
    length: int,
    scale: float,
) -> Tensor:
    """Does what `_attend` does by the kernel for packed sequences, whose keys may have room behind them.

    Args:
        query: [R, H, 1, D].
        key: [R, H_kv, 1, D].
        value: like ``key``.
        slots: the layer's.
        positions: int64 [R].
        starts: of the rows among the queries, and of the slots in `_as_one_row`; int32 [2, R + 1].
        length: more than the largest position.
        scale: factor on the scores.
    """
    keys, values = (_as_one_row(part) for part in _write(key, value, slots, positions))
    used = (positions + 1).int()
    output: Tensor = packed_decode(query[:, :, 0], keys, values, starts, used, length, scale)
    return output[:, :, None]


def _as_one_row(slots: Tensor) -> Tensor:
    """Views slots [S, H_kv, L, D] as one row of tokens [.., H_kv, D], in which slot i starts at token i H_kv L.

    The heads of a token lie L D numbers apart, so that tokens between two slots are those of other heads.
    """
    count, heads, length, size = slots.shape
    return slots.as_strided((((count - 1) * heads + 1) * length, heads, size), (size, length * size, 1))


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


@torch.library.custom_op("ngrpo::slot_flash_attention", mutates_args={"data"})
def slot_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    data: Tensor,
    layer: Tensor,
    positions: Tensor,
    starts: Tensor,
    length: int,
    scale: float,
) -> Tensor:
    """See `DecodeAttention`; ``layer`` is an int64 scalar in host memory."""
    return _attend_flash(query, key, value, data[int(layer)], positions, starts, length, scale).contiguous()


@slot_attention.register_fake
@slot_flash_attention.register_fake
def _(query: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape)
