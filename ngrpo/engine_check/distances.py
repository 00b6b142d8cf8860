"""Distances between two decisions about the same positions: of tokens, of mixed flags, and of mixtures."""

import torch
from torch import Tensor

from ngrpo.types.records import Step


def tokens(one: Step, other: Step) -> Tensor:
    """Returns 1 where the tokens differ, else 0; float32 [N]."""
    return (one.token != other.token).float()


def flags(one: Step, other: Step) -> Tensor:
    """Returns 1 where only one of them is mixed, else 0; float32 [N]."""
    return (one.mixed != other.mixed).float()


def mixtures(one: Step, other: Step) -> Tensor:
    """Returns how far the records of the M positions that both mixed are apart; float32 [M].

    That is the sum of |difference of weights| over all ids, whatever their order, and the relative differences of
    vector and noise.
    """
    both = one.mixed & other.mixed
    ids = torch.cat([one.ids[both].long(), other.ids[both].long()], -1)
    weights = torch.cat([one.weights[both], -other.weights[both]], -1)
    same = ids[:, :, None] == ids[:, None, :]
    # An id that occurs twice is counted once.
    distance = ((same * weights[:, None, :]).sum(-1).abs() / same.sum(-1)).sum(-1)
    for a, b in ((one.vector, other.vector), (one.noise, other.noise)):
        if a is not None and b is not None:
            distance = distance + _relative(a[both].float(), b[both].float())
    return distance.nan_to_num(nan=torch.inf)


def _relative(a: Tensor, b: Tensor) -> Tensor:
    a, b = (one[:, None] if one.dim() == 1 else one for one in (a, b))
    return (a - b).norm(dim=-1) / b.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
