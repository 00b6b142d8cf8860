"""Log-probs and entropies from hidden states and the head, a chunk of rows at a time: never [rows, vocabulary]."""

from typing import Any

import torch
from torch import Tensor

from ngrpo.exploration.support import on_support
from ngrpo.modeling.compiled import compiled_for
from ngrpo.modeling.exact.linear import exact_linear
from ngrpo.modeling.exact.token_scores import exact_token_scores
from ngrpo.modeling.gradients import add_product
from ngrpo.modeling.head import LogitMap
from ngrpo.types.support import NO_ID
from ngrpo.utils.tempered import tempered

_VOCABULARY = (1,)
"""The dimension of logits [R, V] that has the same size in every call."""


def fused_token_scores(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tokens: Tensor,
    temperature: float,
    rows: int,
    logit_map: LogitMap | None = None,
    exact: bool = False,
    support: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns log softmax(f(z) / temperature)[token] and the entropy of that softmax, z = hidden weight^T + bias.

    Products are made in the autocast dtype if autocast is on, else in that of the weight; softmax and sums in float32.
    The backward pass makes the logits of each chunk again; gradient flows through both results. Memory is that of one
    chunk of logits, and of a float32 gradient of the weight.

    With a support the softmax of each row is that of its ids alone: the logits of all others have no part in the
    results, and no gradient. Softmax and sums are then over C columns, not over V.

    Args:
        hidden: [R, d].
        weight: [V, d].
        bias: [V] or None.
        tokens: int64 [R].
        temperature: tau > 0.
        rows: most rows in a chunk.
        logit_map: f; None is the identity.
        exact: a row's results do not depend on the other rows (`ngrpo.modeling.exact`).
        support: the ids of each row, one or more, before its `NO_ID`; int64 [R, C], None for the whole vocabulary.

    Returns:
        Two float32 [R]; the entropy in nats.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with torch.autocast(device, enabled=False):
        scores: tuple[Tensor, Tensor] = _FusedTokenScores.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, tokens, temperature, rows, dtype, logit_map or LogitMap(), exact, support
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
        logit_map: LogitMap,
        exact: bool,
        support: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        served = weight.to(dtype)
        log_probs, entropies, normalisers = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(3))
        for at in _chunks(len(hidden), rows):
            product = (exact_linear if exact else _product)(hidden[at].to(dtype), served, bias)
            score = _exact_scores if exact else compiled_for(product, _scores, _VOCABULARY)
            made = score(product, tokens[at], temperature, logit_map, None if support is None else support[at])
            log_probs[at], entropies[at], normalisers[at] = made
            del product  # else it lives until the next chunk's is there, and two are the most memory of the pass
        ctx.save_for_backward(hidden, weight, bias, tokens, normalisers, entropies, support)
        ctx.settings = temperature, rows, dtype, logit_map
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, tokens, normalisers, entropies, support = ctx.saved_tensors
        temperature, rows, dtype, logit_map = ctx.settings
        for_log_prob, for_entropy = gradients
        served = weight.to(dtype)
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        to_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for at in _chunks(len(hidden), rows):
            inputs = hidden[at].to(dtype)
            product = _product(inputs, served, bias)
            rows_of = tokens[at], normalisers[at], entropies[at], for_log_prob[at], for_entropy[at]
            if support is None:
                to_product = compiled_for(product, _to_product, _VOCABULARY)(product, *rows_of, temperature, logit_map)
            else:
                to_product = compiled_for(product, _to_support, _VOCABULARY)(
                    product, *rows_of, temperature, logit_map, support[at]
                )
            if to_bias is not None:
                to_bias += to_product.sum(0, dtype=torch.float32)
            to_hidden[at] = (to_product @ served).to(hidden.dtype)
            if to_weight is not None:
                add_product(to_weight, to_product.T, inputs)
            del product, to_product
        return (
            to_hidden,
            None if to_weight is None else to_weight.to(weight.dtype),
            None if to_bias is None else to_bias.to(bias.dtype),
            *(None,) * 7,
        )


def _chunks(rows: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, rows, size)]


def _product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = hidden @ weight.T
    return product if bias is None else product + bias.to(product.dtype)


def _scores(
    product: Tensor, tokens: Tensor, temperature: float, logit_map: LogitMap, support: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log-prob, entropy and normaliser of each row; [R, V] -> float32 [R] each."""
    if support is None:
        scaled = tempered(logit_map(product), temperature)
        chosen = scaled.gather(-1, tokens[:, None])
    else:
        of_ids, of_token = product.gather(-1, support.clamp(min=0)), product.gather(-1, tokens[:, None])
        scaled = tempered(logit_map(of_ids), temperature).masked_fill(support == NO_ID, -torch.inf)
        chosen = tempered(logit_map(of_token), temperature)
    normaliser = scaled.logsumexp(-1)
    log_probs = scaled - normaliser[:, None]
    return chosen[:, 0] - normaliser, entropy_from(log_probs), normaliser


def _exact_scores(
    product: Tensor, tokens: Tensor, temperature: float, logit_map: LogitMap, support: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the same as `_scores`, each row on its own."""
    logits = logit_map(product)
    if support is None:
        return exact_token_scores(logits, tokens, temperature)
    return exact_token_scores(*on_support(logits, tokens, support), temperature)


def entropy_from(log_probs: Tensor) -> Tensor:
    """Returns the entropy in nats; normalised [R, V] -> [R]. A log-prob of -inf has probability 0 and adds nothing."""
    return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)


def _to_product(
    product: Tensor,
    tokens: Tensor,
    normaliser: Tensor,
    entropy: Tensor,
    for_log_prob: Tensor,
    for_entropy: Tensor,
    temperature: float,
    logit_map: LogitMap,
) -> Tensor:
    """Returns the gradient with respect to z, in its dtype; y = f(z) are the logits.

    d log p_o / d y_v = ([v = o] - p_v) / tau
    d H / d y_v = -p_v (log p_v + H) / tau
    """
    logits = logit_map(product).float()
    log_probs = tempered(logits, temperature) - normaliser[:, None]
    # Not a scatter, which would write the whole gradient before its dtype is that of the product.
    chosen = torch.arange(logits.shape[-1], device=logits.device) == tokens[:, None]
    gradient = _to_scaled(log_probs, chosen, entropy, for_log_prob, for_entropy)
    return (tempered(gradient, temperature) * logit_map.slope(logits)).to(product.dtype)


def _to_scaled(log_probs: Tensor, chosen: Tensor, entropy: Tensor, for_log_prob: Tensor, for_entropy: Tensor) -> Tensor:
    """Returns the gradient with respect to y / tau, [R, C] as the log-probs and the mask of the drawn tokens are."""
    finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)
    slope = for_log_prob[:, None] + for_entropy[:, None] * (finite + entropy[:, None])
    return torch.where(chosen, for_log_prob[:, None], 0.0) - log_probs.exp() * slope


def _to_support(
    product: Tensor,
    tokens: Tensor,
    normaliser: Tensor,
    entropy: Tensor,
    for_log_prob: Tensor,
    for_entropy: Tensor,
    temperature: float,
    logit_map: LogitMap,
    support: Tensor,
) -> Tensor:
    """Returns what `_to_product` does where each row's softmax is that of its support; 0 outside of it."""
    filled = support != NO_ID
    # Each empty place repeats the first id with its gradient, so that what is written twice is the same.
    ids = torch.where(filled, support, support[:, :1])
    logits = logit_map(product.gather(-1, ids)).float()
    log_probs = tempered(logits, temperature) - normaliser[:, None]
    gradient = _to_scaled(log_probs, ids == tokens[:, None], entropy, for_log_prob, for_entropy)
    to_ids = (tempered(gradient, temperature) * logit_map.slope(logits)).to(product.dtype)
    return torch.zeros_like(product).scatter(-1, ids, to_ids)
