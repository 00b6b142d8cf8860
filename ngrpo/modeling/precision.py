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

    A backward pass makes bfloat16 gradients of the copies, which are added to the parameters' own and dropped at once.
    """
    if isinstance(model, FSDPModule):
        yield
        return
    places = [
        (module, name, parameter)
        for module in model.lm.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.dtype != COMPUTED_IN
    ]
    copies = {parameter: _copy(parameter) for _, _, parameter in places}  # one of a tied weight
    try:
        for module, name, parameter in places:
            module._parameters[name] = copies[parameter]
        yield
    finally:
        for module, name, parameter in places:
            module._parameters[name] = parameter


def _copy(parameter: Tensor) -> Tensor:
    """Returns a copy to compute with, whose gradients end in the parameter's.

    A cast that autograd knows of would do the same, but write and read each gradient once more in float32: a tenth of
    the time of a microbatch of a few thousand tokens.
    """
    copy = parameter.detach().to(COMPUTED_IN).requires_grad_(parameter.requires_grad)

    def hand_over(leaf: Tensor) -> None:
        assert leaf.grad is not None
        if parameter.grad is None:
            parameter.grad = leaf.grad.to(parameter.dtype)
        else:
            parameter.grad.add_(leaf.grad)
        leaf.grad = None

    if copy.requires_grad:
        copy.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]
    return copy


@torch.no_grad()
def round_parameters(model: ScoringModel) -> None:
    """Rounds the language model's parameters, not its buffers, to bfloat16 for good: for a model that is not trained.

    Rotary frequencies are such a buffer; rounded, they would turn late positions by whole radians.
    """
    for parameter in model.lm.parameters():
        parameter.data = parameter.data.to(COMPUTED_IN)
