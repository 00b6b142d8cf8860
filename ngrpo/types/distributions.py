"""The distributions that the tokens of a response were drawn from, as far as they are recorded."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.types.support import NO_ID


class Distributions(NamedTuple):
    """Entropies and the two likeliest tokens, at the sampling temperature; of the support where sampling is truncated.

    The leading dimensions are those of whatever holds them. Tokens that were given have none of this: entropy 0, and no
    ids.

    Attributes:
        entropy: in nats; float32 [...].
        ids: the two likeliest tokens, the likeliest first and of equal ones the smaller id; `NO_ID` for the second of a
            support of one token; int32 [..., 2].
        log_probs: theirs, -inf where there is no id; float32 [..., 2].
    """

    entropy: Tensor
    ids: Tensor
    log_probs: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Distributions":
        """Applies ``change`` to every channel."""
        return Distributions(*map(change, self))

    def put(self, at: tuple[Tensor, ...], values: "Distributions") -> None:
        """Writes ``values`` at the indices ``at``, in place."""
        for channel, value in zip(self, values, strict=True):
            channel[at] = value.to(channel.dtype)

    def clear(self, at: tuple[int | slice, ...] = ()) -> None:
        """Makes the places ``at`` those of tokens that were given, in place."""
        for channel, value in zip(self, _OF_A_GIVEN_TOKEN, strict=True):
            channel[at] = value

    @classmethod
    def empty(cls, leading: tuple[int, ...], device: torch.device) -> "Distributions":
        """Returns those of tokens that were given, to be filled."""
        entropy, ids, log_probs = _OF_A_GIVEN_TOKEN
        return cls(
            torch.full(leading, entropy, device=device),
            torch.full((*leading, 2), ids, dtype=torch.int32, device=device),
            torch.full((*leading, 2), log_probs, device=device),
        )


_OF_A_GIVEN_TOKEN = (0.0, NO_ID, -torch.inf)
