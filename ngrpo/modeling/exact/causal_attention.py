"""Causal attention whose result for a token depends on its own query and the keys and values up to it alone."""

import torch
from torch import Tensor

from ngrpo.modeling.exact.order_free import order_free_mixture, order_free_product, order_free_sum
from ngrpo.modeling.exact.value_and_gradient import Function, value_and_gradient


def exact_packed_attention(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float, differentiable: Function
) -> Tensor:
    """Attends inside each of several packed sequences.

    Args:
        query: [1, H, N, D].
        key: [1, H_kv, N, D].
        value: like ``key``.
        starts: the first token of each sequence, and N; int32 [S + 1].
        longest: tokens of the longest.
        scale: factor on the scores.
        differentiable: attends with ordinary kernels, for the gradient; same arguments, without itself.

    Returns:
        [1, H, N, D].
    """

    def exact(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if query.is_cuda:
            from ngrpo.modeling.exact.kernels.attention import packed  # Triton is there with a GPU only

            made: Tensor = packed(query[0], key[0], value[0], starts, longest, scale)[None]
            return made
        lengths = starts.diff().tolist()
        segments = zip(*(torch.split(part, lengths, dim=2) for part in (query, key, value)), strict=True)
        return torch.cat([_causal(q, k, v, scale) for q, k, v in segments], dim=2)

    def ordinary(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return differentiable(query, key, value, starts, longest, scale)

    return value_and_gradient(exact, ordinary, query, key, value)


def exact_decode_attention(query: Tensor, keys: Tensor, values: Tensor, positions: Tensor, scale: float) -> Tensor:
    """Attends from one new token in each of the first R slots of a cache, whose own key is written already.

    Args:
        query: [R, H, 1, D].
        keys: [S, H_kv, L, D].
        values: like ``keys``.
        positions: of each new token; int64 [R].
        scale: factor on the scores.

    Returns:
        [R, H, 1, D].
    """
    if query.is_cuda:
        from ngrpo.modeling.exact.kernels.attention import decode  # Triton is there with a GPU only

        made: Tensor = decode(query[:, :, 0].transpose(0, 1), keys, values, positions, scale)
        return made.transpose(0, 1)[:, :, None]
    length = int(positions.max()) + 1
    visible = torch.arange(length) <= positions[:, None]
    rows = slice(0, len(query))
    return _attend(query, keys[rows, :, :length], values[rows, :, :length], visible[:, None, None], scale)


def _causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    visible = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).tril()
    return _attend(query, key, value, visible, scale)


def _attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Attends on a CPU: [B, H, T, D], [B, H_kv, L, D] and a mask that broadcasts to [B, H, T, L]."""
    repeats = query.shape[1] // key.shape[1]
    keys, values = (part.double().repeat_interleave(repeats, dim=1) for part in (key, value))
    scores = (order_free_product(query.double(), keys) * scale).masked_fill(~visible, -torch.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    mixture = order_free_mixture(weights, values) / order_free_sum(weights)[..., None]
    return mixture.to(query.dtype)
