"""Log-probs and entropies from hidden states and the head, a chunk of rows at a time: never [rows, vocabulary]."""

from typing import Any

import torch
from torch import Tensor


def fused_token_scores(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, temperature: float, rows: int
) -> tuple[Tensor, Tensor]:
    """Returns log softmax(z / temperature)[token] and the entropy of that softmax, z = hidden weight^T + bias.

    Products are made in the autocast dtype if autocast is on, else in that of the weight; softmax and sums in float32.
    The backward pass makes the logits of each chunk again; gradient flows through both results. Memory is that of one
    chunk of logits, and of a float32 gradient of the weight.

    Args:
        hidden: [R, d].
        weight: [V, d].
        bias: [V] or None.
        tokens: int64 [R].
        temperature: tau > 0.
        rows: most rows in a chunk.

    Returns:
        Two float32 [R]; the entropy in nats.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with torch.autocast(device, enabled=False):
        scores: tuple[Tensor, Tensor] = _FusedTokenScores.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, tokens, temperature, rows, dtype
        )
    return scores


class _FusedTokenScores(torch.autograd.Function):
    """See `fused_token_scores`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        temperature: float,
        rows: int,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        served = weight.to(dtype)
        log_probs, entropies, normalisers = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(3))
        for at in _chunks(len(hidden), rows):
            logits = _logits(hidden[at].to(dtype), served, bias, temperature)
            log_probs[at], entropies[at], normalisers[at] = _scores(logits, tokens[at])
        ctx.save_for_backward(hidden, weight, bias, tokens, normalisers, entropies)
        ctx.settings = temperature, rows, dtype
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, tokens, normalisers, entropies = ctx.saved_tensors
        temperature, rows, dtype = ctx.settings
        for_log_prob, for_entropy = gradients
        served = weight.to(dtype)
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        to_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for at in _chunks(len(hidden), rows):
            inputs = hidden[at].to(dtype)
            logits = _logits(inputs, served, bias, temperature)
            to_logits = _to_logits(
                logits, tokens[at], normalisers[at], entropies[at], for_log_prob[at], for_entropy[at], temperature
            )
            if to_bias is not None:
                to_bias += to_logits.sum(0)
            to_logits = to_logits.to(dtype)
            to_hidden[at] = (to_logits @ served).to(hidden.dtype)
            if to_weight is not None:
                to_weight += to_logits.T @ inputs
        return (
            to_hidden,
            None if to_weight is None else to_weight.to(weight.dtype),
            None if to_bias is None else to_bias.to(bias.dtype),
            *(None,) * 4,
        )


def _chunks(rows: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, rows, size)]


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = hidden @ weight.T
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    return logits.float() / temperature


def _scores(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log-prob, entropy and normaliser of each row; float32 [R, V] -> [R] each."""
    normaliser = logits.logsumexp(-1)
    log_probs = logits - normaliser[:, None]
    # A logit of -inf has probability 0 and adds nothing.
    entropy = -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)
    return log_probs.gather(-1, tokens[:, None])[:, 0], entropy, normaliser


def _to_logits(
    logits: Tensor,
    tokens: Tensor,
    normaliser: Tensor,
    entropy: Tensor,
    for_log_prob: Tensor,
    for_entropy: Tensor,
    temperature: float,
) -> Tensor:
    """Returns the gradient with respect to the undivided logits.

    d log p_o / d z_v = ([v = o] - p_v) / tau
    d H / d z_v = -p_v (log p_v + H) / tau
    """
    log_probs = logits - normaliser[:, None]
    slope = for_log_prob[:, None] + for_entropy[:, None] * (
        log_probs.clamp_min(torch.finfo(log_probs.dtype).min) + entropy[:, None]
    )
    gradient = -log_probs.exp() * slope
    gradient.scatter_add_(-1, tokens[:, None], for_log_prob[:, None])
    return gradient / temperature
