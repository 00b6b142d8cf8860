"""Causal attention inside each of several packed sequences: one kernel on a GPU, one call a sequence elsewhere."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

_HALF = (torch.float16, torch.bfloat16)
_PADDED = 2.0
"""Most places of padded sequences, as a multiple of their tokens."""


def packed_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float) -> Tensor:
    """Attends causally inside each sequence.

    In half precision on CUDA one kernel runs over the whole row: flash-attn's if it is installed, else PyTorch's own.
    In single precision there it is one call on padded sequences, unless their lengths are too different.

    Args:
        query: [1, H, N, D].
        key: [1, H_kv, N, D], H a multiple of H_kv.
        value: like ``key``.
        starts: the first token of each sequence, and N; int32 [S + 1] on the same device.
        longest: tokens of the longest sequence.
        scale: factor on the scores.

    Returns:
        [1, H, N, D].
    """
    if query.is_cuda and query.dtype in _HALF:
        # Squeezed: the gradient of an index would be a copy in another order.
        q, k, v = (part.squeeze(0).transpose(0, 1) for part in (query, key, value))
        return _kernel(q, k, v, starts, longest, scale).transpose(0, 1).unsqueeze(0)
    if torch.compiler.is_compiling():
        attended: Tensor = segment_attention(query, key, value, starts, scale)
        return attended
    if query.is_cuda and (len(starts) - 1) * longest <= _PADDED * query.shape[2]:
        return padded_attention(query, key, value, starts, longest, scale)
    return _by_segment(query, key, value, starts, scale)


def padded_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float) -> Tensor:
    """Attends inside each sequence in one call on [S, H, longest, D]; see `packed_attention`.

    Padding follows a sequence, where its tokens never look.
    """
    rows = torch.arange(query.shape[2], device=query.device)
    sequence = torch.searchsorted(starts[1:], rows, right=True)
    place = rows - starts[sequence]
    repeats = query.shape[1] // key.shape[1]

    def padded(part: Tensor) -> Tensor:
        room = part.new_zeros(len(starts) - 1, longest, part.shape[1], part.shape[3])
        room = room.index_put((sequence, place), part[0].transpose(0, 1))
        return room.transpose(1, 2)

    heads = padded(query), repeat_heads(padded(key), repeats), repeat_heads(padded(value), repeats)
    attended = scaled_dot_product_attention(*heads, is_causal=True, scale=scale)
    return attended.transpose(1, 2)[sequence, place].transpose(0, 1)[None]


def _by_segment(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float) -> Tensor:
    lengths = starts.diff().tolist()
    repeats = query.shape[1] // key.shape[1]
    segments = zip(*(torch.split(part, lengths, dim=2) for part in (query, key, value)), strict=True)
    outputs = [
        scaled_dot_product_attention(q, repeat_heads(k, repeats), repeat_heads(v, repeats), is_causal=True, scale=scale)
        for q, k, v in segments
    ]
    return torch.cat(outputs, dim=2)


def repeat_heads(tensor: Tensor, repeats: int) -> Tensor:
    """Repeats each key/value head for the query heads that share it; [B, H_kv, T, D] -> [B, H, T, D]."""
    return tensor if repeats == 1 else tensor.repeat_interleave(repeats, dim=1)


# One operator to the compiler, which would otherwise make a graph for every list of lengths.
@torch.library.custom_op("ngrpo::segment_attention", mutates_args=())
def segment_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float) -> Tensor:
    """See `packed_attention`."""
    return _by_segment(query, key, value, starts, scale)


@segment_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float) -> Tensor:
    return query.new_empty(query.shape)


@torch.library.custom_op("ngrpo::segment_attention_backward", mutates_args=())
def segment_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of query, key and value."""
    lengths = starts.diff().tolist()
    segments = zip(*(torch.split(part, lengths, dim=2) for part in (gradient, query, key, value)), strict=True)
    made = zip(*(_segment_backward(g, q, k, v, scale) for g, q, k, v in segments), strict=True)
    to_query, to_key, to_value = (torch.cat(parts, dim=2) for parts in made)
    return to_query, to_key, to_value


def _segment_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Written out, since nothing inside an operator is differentiated; [1, H, T, D] and [1, H_kv, T, D]."""
    shape, repeats = key.shape, query.shape[1] // key.shape[1]
    key, value = repeat_heads(key, repeats), repeat_heads(value, repeats)
    scores = query @ key.transpose(-1, -2) * scale
    later = torch.ones(shape[2], shape[2], dtype=torch.bool, device=key.device).triu(1)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    to_weights = gradient @ value.transpose(-1, -2)
    to_scores = weights * (to_weights - (to_weights * weights).sum(-1, keepdim=True)) * scale

    def shared(to_heads: Tensor) -> Tensor:
        return to_heads.view(shape[0], shape[1], repeats, *shape[2:]).sum(2)

    to_value = weights.transpose(-1, -2) @ gradient
    return to_scores @ key, shared(to_scores.transpose(-1, -2) @ query), shared(to_value)


@segment_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    to_query, to_key, to_value = (part.new_empty(part.shape) for part in (query, key, value))
    return to_query, to_key, to_value


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, scale = inputs
    ctx.save_for_backward(*tensors)
    ctx.scale = scale


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return (*segment_attention_backward(gradient, *ctx.saved_tensors, ctx.scale), None, None)


segment_attention.register_autograd(_backward, setup_context=_keep)


def _flash_attn() -> Callable[..., Any] | None:
    """Returns the function of flash-attn 3 or 2, if either can be imported."""
    for package in ("flash_attn_interface", "flash_attn"):
        try:
            function: Callable[..., Any] = importlib.import_module(package).flash_attn_varlen_func
        except ImportError:
            continue
        return function
    return None


_FLASH_ATTN = _flash_attn()
_VARLEN_ATTN: Callable[..., Any] = varlen_attn
# PyTorch 2.11 has no such argument, and shares heads without it.
_SHARES_HEADS = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def _kernel(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float) -> Tensor:
    """Runs the kernel on [N, H, D]."""
    if _FLASH_ATTN is not None:
        made = _FLASH_ATTN(query, key, value, starts, starts, longest, longest, softmax_scale=scale, causal=True)
        output: Tensor = made[0] if isinstance(made, tuple) else made  # flash-attn 3 returns the normalisers too
        return output
    bounds = starts, starts, longest, longest
    attended: Tensor = _VARLEN_ATTN(query, key, value, *bounds, scale=scale, window_size=(-1, 0), **_SHARES_HEADS)
    return attended


def packed_decode(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, used: Tensor, longest: int, scale: float
) -> Tensor:
    """Attends with one query a sequence to the first tokens of its keys; half precision on CUDA.

    PyTorch's own kernel, by its operator: `varlen_attn` has no ``seqused_k`` in all versions.

    Args:
        query: [R, H, D].
        key: [N, H_kv, D], of any strides but the last; H a multiple of H_kv.
        value: like ``key``.
        starts: the row of each query, and the first key of each sequence; int32 [2, R + 1].
        used: how many keys a query sees; int32 [R].
        longest: no less than any of them.
        scale: factor on the scores.

    Returns:
        [R, H, D].
    """
    made = torch.ops.aten._flash_attention_forward(
        query, key, value, starts[0], starts[1], 1, longest, 0.0, False, False, scale=scale, seqused_k=used
    )
    output: Tensor = made[0]
    return output
