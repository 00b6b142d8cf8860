"""Entropies and likeliest tokens of a decode step, the same tensor function in every engine."""

import torch
from torch import Tensor

from ngrpo.exploration.support import masked_to
from ngrpo.types.distributions import Distributions
from ngrpo.types.support import NO_ID


def distributions_of(logits: Tensor, support: Tensor | None) -> Distributions:
    """Returns the entropies and the two likeliest tokens of R rows.

    By two maxima, of which each is the first of equal ones on every device.

    Args:
        logits: float32 [R, V], already divided by the sampling temperature.
        support: see `Step`; None for the whole vocabulary in all rows.
    """
    log_probs = (logits if support is None else masked_to(logits, support)).log_softmax(-1)
    probabilities = log_probs.exp()
    entropy = -(probabilities * log_probs.masked_fill(probabilities == 0, 0.0)).sum(-1)
    first = log_probs.argmax(-1, keepdim=True)
    others = log_probs.scatter(-1, first, -torch.inf)
    second = others.argmax(-1, keepdim=True)
    values = torch.cat((log_probs.gather(-1, first), others.gather(-1, second)), -1)
    return Distributions(entropy, torch.cat((first, second), -1).masked_fill(values == -torch.inf, NO_ID), values)
