"""Sums along rows, by PyTorch's own kernel in compiled code too."""

import torch
from torch import Tensor


@torch.library.custom_op("ngrpo::running_sums", mutates_args=())
def running_sums(values: Tensor) -> Tensor:
    """Returns what ``values.cumsum(-1)`` does, without gradients.

    torch.compile for a GPU splits sums along rows as long as a vocabulary over several programs, and fails on that
    kernel (PyTorch 2.11: "NYI TritonSplitDimKernel reductions" beside a reduction, a TypeError alone); it does not
    look into this one.

    Args:
        values: float of any shape.
    """
    return values.cumsum(-1)


@running_sums.register_fake
def _(values: Tensor) -> Tensor:
    return values.new_empty(values.shape)
