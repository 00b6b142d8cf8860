"""Norms and token scores, a row at a time."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_WARPS = 4
_BLOCK = 4096
"""Logits that are read at a time."""


def rms_norm(rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Returns weight x / sqrt(mean x^2 + epsilon); contiguous [M, d], [d] -> [M, d]."""
    output = torch.empty_like(rows)
    count, width = rows.shape
    if count:
        _rms_norm[(count,)](rows, weight, output, epsilon, width, triton.next_power_of_2(width), num_warps=_WARPS)
    return output


def token_scores(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log-prob of a token, entropy and normaliser of softmax(logits / temperature); float32 [M] each.

    Args:
        logits: contiguous [M, V].
        tokens: int64 [M].
        temperature: tau.
    """
    count, width = logits.shape
    log_probs, entropies, normalisers = (logits.new_empty(count, dtype=torch.float32) for _ in range(3))
    if count:
        _token_scores[(count,)](
            logits, tokens, log_probs, entropies, normalisers, temperature, width, _BLOCK, num_warps=_WARPS
        )
    return log_probs, entropies, normalisers


@triton.jit
def _rms_norm(
    rows: tl.tensor, weight: tl.tensor, output: tl.tensor, epsilon: tl.tensor, width: tl.tensor, BLOCK: tl.constexpr
) -> None:
    start = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(rows + start + column, mask=inside, other=0.0)
    numbers = values.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(numbers * numbers, 0) / width + epsilon)
    normal = (numbers * scale).to(values.dtype)
    factor = tl.load(weight + column, mask=inside, other=0.0)
    tl.store(output + start + column, (factor * normal).to(values.dtype), mask=inside)


@triton.jit
def _token_scores(
    logits: tl.tensor,
    tokens: tl.tensor,
    log_probs: tl.tensor,
    entropies: tl.tensor,
    normalisers: tl.tensor,
    temperature: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    start = row.to(tl.int64) * width
    highest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(logits + start + column, mask=column < width, other=float("-inf"))
        highest = tl.maximum(highest, values.to(tl.float32) / temperature)
    top = tl.max(highest, 0)
    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    moment = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(logits + start + column, mask=column < width, other=float("-inf"))
        below = values.to(tl.float32) / temperature - top
        part = tl.exp(below)
        mass += part
        moment += tl.where(part > 0, part * below, 0.0)
    total = tl.sum(mass, 0)
    spread = tl.log(total)
    chosen = tl.load(logits + start + tl.load(tokens + row)).to(tl.float32) / temperature
    tl.store(log_probs + row, chosen - top - spread)
    tl.store(entropies + row, spread - tl.sum(moment, 0) / total)
    tl.store(normalisers + row, top + spread)
