"""The product of rows with a weight matrix, each sum in one order.

A program makes a tile of the output and walks the whole inner dimension: nothing is split, and a row's numbers meet in
the same order wherever the row stands in a tile and however many rows there are.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tiles(NamedTuple):
    """The part of a product that one program makes.

    Attributes:
        rows: of the output; at least 64 on tensor cores, below which a Hopper GPU multiplies by another instruction.
        columns: of the output.
        depth: of the inner dimension in a step.
        warps: that share the tile.
        stages: steps whose numbers are fetched ahead.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


FEW_ROWS = Tiles(rows=64, columns=32, depth=128, warps=4, stages=4)
"""For a decode step, whose time is that of reading the weights."""
FEW_ROWS_WIDE = Tiles(rows=64, columns=64, depth=128, warps=4, stages=3)
"""The same for weights of so many rows that all programs have work with wider tiles."""
MANY_ROWS = Tiles(rows=128, columns=128, depth=64, warps=8, stages=3)
"""For prefills and training; the sums are those of `FEW_ROWS`, since a sum's order does not depend on its tile."""
SINGLE = Tiles(rows=64, columns=64, depth=32, warps=4, stages=2)
"""In float32, which is multiplied without tensor cores, number by number."""
SINGLE_FEW_ROWS = Tiles(rows=16, columns=32, depth=64, warps=4, stages=2)
"""The same for a decode step."""
_FEW = 64
_WIDE = 8192
_GROUP = 8
"""Rows of tiles that are made side by side, so that they find their weights in the cache."""


def tiles_for(rows: int, columns: int, dtype: torch.dtype) -> Tiles:
    """Returns the tiles of a product [rows, columns]."""
    if dtype == torch.float32:
        return SINGLE_FEW_ROWS if rows <= _FEW else SINGLE
    if rows > _FEW:
        return MANY_ROWS
    return FEW_ROWS_WIDE if columns >= _WIDE else FEW_ROWS


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None, tiles: Tiles | None = None) -> Tensor:
    """Returns rows weight^T + bias, added up in float32; [M, K], [N, K], [N] -> [M, N].

    Args:
        rows: contiguous, as the weight is.
        weight: of the same dtype.
        bias: None for none.
        tiles: None for those of this size.
    """
    (count, depth), columns = rows.shape, weight.shape[0]
    output = rows.new_empty(count, columns)
    if not count:
        return output
    t = tiles or tiles_for(count, columns, rows.dtype)
    grid = (triton.cdiv(count, t.rows) * triton.cdiv(columns, t.columns),)
    _linear[grid](
        rows, weight, weight if bias is None else bias, output, count, columns, depth,
        bias is not None, t.rows, t.columns, t.depth, _GROUP, num_warps=t.warps, num_stages=t.stages,
    )  # fmt: skip
    return output


@triton.jit(do_not_specialize=["count"])
def _linear(
    rows: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    output: tl.tensor,
    count: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    tiles_down, tiles_across = tl.cdiv(count, ROWS), tl.cdiv(columns, COLUMNS)
    first = program // (GROUP * tiles_across) * GROUP
    high = tl.minimum(tiles_down - first, GROUP)
    within = program % (GROUP * tiles_across)
    row = (first + within % high) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    column = within // high * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        inner = start + tl.arange(0, DEPTH)
        left = tl.load(
            rows + row[:, None] * depth + inner[None, :],
            mask=(row[:, None] < count) & (inner[None, :] < depth),
            other=0.0,
        )
        right = tl.load(
            weight + column[None, :] * depth + inner[:, None],
            mask=(column[None, :] < columns) & (inner[:, None] < depth),
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    tl.store(
        output + row[:, None] * columns + column[None, :],
        total.to(output.dtype.element_ty),
        mask=(row[:, None] < count) & (column[None, :] < columns),
    )
