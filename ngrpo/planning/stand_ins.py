"""Stand-ins on the meta device for the two kernels of a pass: they allocate what the kernels do, and compute nothing.

Attention keeps queries, keys, values, outputs and a normaliser of each row for its backward pass. The fused head holds
``rows x vocabulary`` numbers at a time, see `ngrpo.modeling.fused_scores`.
"""

from typing import Any

import torch
from torch import Tensor


# Its name must say attention: selective checkpointing keeps what such operators make.
@torch.library.custom_op("ngrpo::allocated_attention", mutates_args=())
def allocated_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns outputs like ``query`` [N, H, D] and float32 normalisers [H, N]; runs on the meta device only."""
    raise NotImplementedError


@allocated_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = query.shape
    return query.new_empty(query.shape), query.new_empty((heads, tokens), dtype=torch.float32)


@torch.library.custom_op("ngrpo::allocated_attention_backward", mutates_args=())
def allocated_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, normaliser: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of query, key and value; runs on the meta device only."""
    raise NotImplementedError


@allocated_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, normaliser: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    made = (part.new_empty(part.shape) for part in (query, key, value))
    return next(made), next(made), next(made)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    made: tuple[Tensor, ...] = allocated_attention_backward(gradient, *ctx.saved_tensors)
    return made


allocated_attention.register_autograd(_backward, setup_context=_keep)


class AllocatedAttention:
    """An attention plan of one packed row (`ngrpo.modeling.attention.AttentionPlan`)."""

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Allocates what the kernel does for [1, H, N, D]."""
        q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
        return allocated_attention(q, k, v)[0].transpose(0, 1)[None]


class AllocatedHead(torch.autograd.Function):
    """Takes hidden states [R, d] and the head's weight [V, d] to float32 scores [R], ``rows`` rows at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, rows: int) -> Tensor:
        """Allocates a chunk of logits after the other."""
        for count in _chunks(len(hidden), rows):
            product = hidden.new_empty(count, len(weight))
            del product
        ctx.save_for_backward(hidden, weight)
        ctx.rows = rows
        return hidden.new_empty(len(hidden), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Allocates a chunk of logits and of their gradient after the other, and a float32 gradient of the weight."""
        hidden, weight = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for count in _chunks(len(hidden), ctx.rows):
            product = hidden.new_empty(count, len(weight))
            to_product = torch.empty_like(product)
            del product, to_product
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None


def _chunks(tokens: int, rows: int) -> list[int]:
    return [min(rows, tokens - start) for start in range(0, tokens, rows)]
