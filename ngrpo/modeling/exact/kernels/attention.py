"""Causal attention in which each query walks the keys in blocks from the first on.

One kernel for packed sequences and for decode steps over a cache. Blocks start at multiples of their size in each
sequence, and one that lies beyond a query's own position changes none of its numbers: its result depends on the keys
up to its own position alone. The query heads that share a key head are rows of one tile.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_HALF = (64, 64, 4)
_SINGLE = (32, 32, 4)
"""Rows of queries, keys and warps of a tile; in float32 there are no tensor cores, and fewer numbers have room."""


def packed(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float) -> Tensor:
    """Attends inside each of S packed sequences.

    Args:
        query: [H, N, D].
        key: [H_kv, N, D].
        value: like ``key``.
        starts: the first token of each sequence, and N; int32 [S + 1].
        longest: tokens of the longest.
        scale: factor on the scores.

    Returns:
        [H, N, D], laid out as [N, H, D].
    """
    strides = (query.stride(1), query.stride(0)), (0, *key.stride()[:2]), (0, *value.stride()[:2])
    return _attend(query, key.shape[0], key, value, starts, len(starts) - 1, longest, scale, strides, True)


def decode(query: Tensor, keys: Tensor, values: Tensor, positions: Tensor, scale: float) -> Tensor:
    """Attends from one new token in each of the first R slots of a cache, whose own key is written already.

    Args:
        query: [H, R, D].
        keys: [S, H_kv, L, D].
        values: like ``keys``.
        positions: of each new token; int64 [R].
        scale: factor on the scores.

    Returns:
        [H, R, D], laid out as [R, H, D].
    """
    strides = (query.stride(1), query.stride(0)), keys.stride()[:3], values.stride()[:3]
    return _attend(query, keys.shape[1], keys, values, positions, len(positions), 1, scale, strides, False)


def _attend(
    query: Tensor,
    key_heads: int,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    sequences: int,
    longest: int,
    scale: float,
    strides: tuple[tuple[int, ...], ...],
    is_packed: bool,
) -> Tensor:
    heads, tokens, size = query.shape
    output = query.new_empty(tokens, heads, size)
    if tokens:
        rows, keys, warps = _SINGLE if query.dtype == torch.float32 else _HALF
        group = heads // key_heads
        grid = (triton.cdiv(longest * group, rows), key_heads, sequences)
        (query_token, query_head), (key_slot, key_head, key_token), (value_slot, value_head, value_token) = strides
        _attention[grid](
            query, key, value, output, bounds, scale, query_token, query_head, key_slot, key_head, key_token,
            value_slot, value_head, value_token, heads * size, is_packed, group, size,
            max(16, triton.next_power_of_2(size)), rows, keys, num_warps=warps, num_stages=2,
        )  # fmt: skip
    return output.transpose(0, 1)


@triton.jit
def _attention(
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    output: tl.tensor,
    bounds: tl.tensor,
    scale: tl.tensor,
    query_token: tl.tensor,
    query_head: tl.tensor,
    key_slot: tl.tensor,
    key_head: tl.tensor,
    key_token: tl.tensor,
    value_slot: tl.tensor,
    value_head: tl.tensor,
    value_token: tl.tensor,
    output_token: tl.tensor,
    PACKED: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
) -> None:
    tile, head, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    if PACKED:
        start = tl.load(bounds + sequence).to(tl.int64)
        tokens = tl.load(bounds + sequence + 1).to(tl.int64) - start
        length = tokens
    else:
        start = sequence.to(tl.int64)
        tokens = start * 0 + 1
        length = tl.load(bounds + sequence).to(tl.int64) + 1
    if tile * ROWS >= tokens * GROUP:
        return
    row = tile * ROWS + tl.arange(0, ROWS)
    token, of_group = (row // GROUP).to(tl.int64), head * GROUP + row % GROUP
    inside = token < tokens
    place = tl.minimum(length - tokens + token, length - 1)
    part = tl.arange(0, WIDTH)
    queries = tl.load(
        query + (start + token)[:, None] * query_token + of_group[:, None] * query_head + part[None, :],
        mask=inside[:, None] & (part[None, :] < SIZE),
        other=0.0,
    )
    if PACKED:
        keys_of, values_of = key + start * key_token, value + start * value_token
    else:
        keys_of, values_of = key + start * key_slot, value + start * value_slot
    keys_of += head * key_head
    values_of += head * value_head
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((ROWS,), dtype=tl.float32)
    total = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    last = tl.minimum(length, length - tokens + (tile * ROWS + ROWS - 1) // GROUP + 1)
    for first in range(0, last, KEYS):
        at = first + tl.arange(0, KEYS)
        keys = tl.load(
            keys_of + at[None, :] * key_token + part[:, None],
            mask=(at[None, :] < length) & (part[:, None] < SIZE),
            other=0.0,
        )
        scores = tl.dot(queries, keys, input_precision="ieee") * scale
        scores = tl.where(at[None, :] <= place[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        faded = tl.exp(highest - higher)
        weights = tl.exp(scores - higher[:, None])
        mass = mass * faded + tl.sum(weights, 1)
        values = tl.load(
            values_of + at[:, None] * value_token + part[None, :],
            mask=(at[:, None] < length) & (part[None, :] < SIZE),
            other=0.0,
        )
        total = tl.dot(weights.to(values.dtype), values, total * faded[:, None], input_precision="ieee")
        highest = higher
    tl.store(
        output + (start + token)[:, None] * output_token + of_group[:, None] * SIZE + part[None, :],
        (total / mass[:, None]).to(output.dtype.element_ty),
        mask=inside[:, None] & (part[None, :] < SIZE),
    )
