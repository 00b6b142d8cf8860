"""Entropies and likeliest tokens of a decode step, the same tensor function in every engine."""

import torch
from torch import Tensor

from ngrpo.exploration.support import masked_to
from ngrpo.types.distributions import Distributions
from ngrpo.types.support import NO_ID


def distributions_of(logits: Tensor, support: Tensor | None) -> Distributions:
    """Returns the entropies and the two likeliest tokens of R rows.

    By two maxima of the logits, of which each is the first of equal ones on every device. Of two logits that differ in
    their last bits, the log-probs may be equal: by those, the likeliest token would be another than the one emitted.

    Args:
        logits: float32 [R, V], already divided by the sampling temperature.
        support: see `Step`; None for the whole vocabulary in all rows.
    """
    logits = logits if support is None else masked_to(logits, support)
    log_probs = logits.log_softmax(-1)
    probabilities = log_probs.exp()
    entropy = -(probabilities * log_probs.masked_fill(probabilities == 0, 0.0)).sum(-1)
    first = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, first, -torch.inf)
    second = others.argmax(-1, keepdim=True)
    ids = torch.cat((first, second), -1)
    none = torch.cat((logits.gather(-1, first), others.gather(-1, second)), -1) == -torch.inf
    values = log_probs.gather(-1, ids).masked_fill(none, -torch.inf)
    return Distributions(entropy, ids.masked_fill(none, NO_ID), values)
