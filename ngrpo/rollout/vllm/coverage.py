"""The coverage of a weight transfer: served weights that still hold a mark were not written."""

import torch
from torch import nn

from ngrpo.rollout.vllm.checksum import INTEGERS, bits, read_together

_MARKS = {1: 0x7F, 2: 0x7FDA, 4: 0x7FC05ADA, 8: 0x7FF85ADA5ADA5ADA}
"""NaNs that no computation makes, by the bytes of an element: the same number in bfloat16 and float16."""


@torch.no_grad()
def mark(model: nn.Module) -> None:
    """Fills all parameters with the mark; what they held is lost."""
    for parameter in model.parameters():
        size = parameter.element_size()
        parameter.data.view(INTEGERS[size]).fill_(_MARKS[size])


def unwritten(model: nn.Module) -> list[str]:
    """Returns the names of the parameters of which some element still holds the mark."""
    marked = {
        name: (bits(parameter) == _MARKS[parameter.element_size()]).any()
        for name, parameter in model.named_parameters()
    }
    return [name for name, some in zip(marked, read_together(list(marked.values())), strict=True) if some]
