"""Computation in another dtype over parameters that stay in their own.

In float16 trainer and engine are nearer to each other than in bfloat16 (arXiv 2510.26788).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ngrpo.modeling.gradients import accumulate
from ngrpo.modeling.policy import ScoringModel

PRECISIONS: Mapping[str, torch.dtype | None] = {
    "32-true": None,
    "bf16-mixed": torch.bfloat16,
    "16-mixed": torch.float16,
}
"""Values of ``trainer.precision``, and the dtype of forward and backward passes; None is that of the parameters."""


@contextmanager
def computing_in(model: ScoringModel, dtype: torch.dtype) -> Iterator[None]:
    """Puts copies in another dtype in the place of the language model's parameters, which get the gradients.

    Forward and backward belong inside, since a recomputed layer reads its weights again. What is computed is what
    FSDP2's mixed precision computes, weights rounded once and one dtype from the embedding to the head; autocast
    would keep the residual stream in float32, and gather float32 parameters under sharding. A sharded model, whose
    dtypes FSDP2 decides, and one that is in the dtype, is not changed. Learned exploration stays in float32.

    A backward pass makes gradients of the copies, which are added to the parameters' own and dropped at once.

    Args:
        model: its language model computes in ``dtype`` meanwhile.
        dtype: of the copies.
    """
    if isinstance(model, FSDPModule):
        yield
        return
    replaced = [
        (module, name, parameter)
        for module in model.lm.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.dtype != dtype
    ]
    copies = {parameter: _copy(parameter, dtype) for _, _, parameter in replaced}  # one of a tied weight
    try:
        for module, name, parameter in replaced:
            module._parameters[name] = copies[parameter]
        yield
    finally:
        for module, name, parameter in replaced:
            module._parameters[name] = parameter


def _copy(parameter: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a copy to compute with, whose gradients end in the parameter's.

    A cast that autograd knows of would do the same, but write and read each gradient once more in float32: a tenth of
    the time of a microbatch of a few thousand tokens.
    """
    copy = parameter.detach().to(dtype).requires_grad_(parameter.requires_grad)

    def add_to_parameter(leaf: Tensor) -> None:
        assert leaf.grad is not None
        accumulate(parameter, leaf.grad)
        leaf.grad = None

    if copy.requires_grad:
        copy.register_post_accumulate_grad_hook(add_to_parameter)  # type: ignore[no-untyped-call]
    return copy


@torch.no_grad()
def round_parameters(model: ScoringModel, dtype: torch.dtype) -> None:
    """Rounds the language model's parameters, not its buffers, to a dtype for good: for a model that is not trained.

    Rotary frequencies are such a buffer; rounded, they would turn late positions by whole radians.
    """
    for parameter in model.lm.parameters():
        parameter.data = parameter.data.to(dtype)
