"""Offloading of optimisers and reference to host memory while they are not needed."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

HOST = torch.device("cpu")


def move_state(optimizers: Iterable[Optimizer], device: torch.device) -> None:
    """Moves the optimisers' moments; counts of steps, which are scalars, stay where the optimiser keeps them.

    Copies to the host that are not waited for one by one go to page-locked memory, several times as fast.
    """
    for optimizer in optimizers:
        for state in optimizer.state.values():
            moments = {n: v for n, v in state.items() if isinstance(v, Tensor) and v.dim() > 0}
            state.update({name: value.to(device, non_blocking=True) for name, value in moments.items()})
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def visiting(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Has a model that waits in host memory on ``device`` for the time being; FSDP2 fetches its shards itself."""
    if isinstance(model, FSDPModule):
        yield
        return
    model.to(device)
    try:
        yield
    finally:
        model.to(HOST)
