"""Log-prob, entropy and normaliser of each row of logits, on its own."""

import torch
from torch import Tensor

from ngrpo.modeling.exact.order_free import order_free_sum


def exact_token_scores(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the scores of one token a row under softmax(logits / temperature); without gradient.

    Args:
        logits: of any float dtype, [R, V].
        tokens: int64 [R].
        temperature: tau.

    Returns:
        Log-prob, entropy and normaliser, float32 [R] each.
    """
    if logits.is_cuda:
        from ngrpo.modeling.exact.kernels.rows import token_scores  # Triton is there with a GPU only

        made: tuple[Tensor, Tensor, Tensor] = token_scores(logits.contiguous(), tokens, temperature)
        return made
    scaled = logits.double() / temperature
    top = scaled.amax(-1, keepdim=True)
    below = scaled - top
    weights = torch.exp(below)
    mass = order_free_sum(weights)
    spread = torch.log(mass)
    chosen = below.gather(-1, tokens[:, None])[:, 0] - spread
    entropy = spread - order_free_sum(weights * below.clamp_min(torch.finfo(torch.float32).min)) / mass
    return chosen.float(), entropy.float(), (top[:, 0] + spread).float()
