"""bfloat16 computation over parameters that stay in their own dtype."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ngrpo.modeling.policy import ScoringModel

COMPUTED_IN = torch.bfloat16


@contextmanager
def half_precision(model: ScoringModel) -> Iterator[None]:
    """Puts bfloat16 copies in the place of the language model's parameters; gradients reach the parameters themselves.

    Forward and backward belong inside, since a recomputed layer reads its weights again. What is computed is what
    FSDP2's mixed precision computes, weights rounded once and bfloat16 from the embedding to the head; autocast would
    keep the residual stream in float32, and gather float32 parameters under sharding. A sharded model, and one that
    is in bfloat16, is left as it is. Learned exploration stays in float32.
    """
    if isinstance(model, FSDPModule):
        yield
        return
    places = [
        (module, name, parameter)
        for module in model.lm.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]
    copies: dict[Tensor, Tensor] = {}  # one of a tied weight
    try:
        for module, name, parameter in places:
            if parameter not in copies:
                copies[parameter] = parameter.to(COMPUTED_IN)
            module._parameters[name] = copies[parameter]
        yield
    finally:
        for module, name, parameter in places:
            module._parameters[name] = parameter


@torch.no_grad()
def round_parameters(model: ScoringModel) -> None:
    """Rounds the language model's parameters, not its buffers, to bfloat16 for good: for a model that is not trained.

    Rotary frequencies are such a buffer; rounded, they would turn late positions by whole radians.
    """
    for parameter in model.lm.parameters():
        parameter.data = parameter.data.to(COMPUTED_IN)
