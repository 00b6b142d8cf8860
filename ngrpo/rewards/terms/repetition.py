"""A punishment for repeated n-grams."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.rewards.terms.base import Responses


def repeated_share(ids: Tensor, n: int) -> float:
    """Returns the share of a response's n-grams that occurred before in it: 1 - distinct / all.

    By doubling: an n-gram is numbered by the numbers of its halves, so that time is T log T log n and memory T,
    however long the n-grams are.

    Args:
        ids: token ids; int64 [T].
        n: tokens of an n-gram.

    Returns:
        From 0 to below 1; 0 for a response shorter than n.
    """
    if len(ids) < n:
        return 0.0
    numbers, length = _numbered(ids), 1  # of the n-gram of this length that starts at each position
    while length < n:
        step = min(length, n - length)
        first, second = numbers[: len(numbers) - step], numbers[step:]
        numbers, length = _numbered(first * len(ids) + second), length + step
    return 1.0 - (int(numbers.max()) + 1) / len(numbers)


def _numbered(values: Tensor) -> Tensor:
    """Returns equal numbers, from 0, for equal values; int64 [T]."""
    return torch.unique(values, return_inverse=True)[1]


@dataclass(frozen=True)
class RepetitionPunishment:
    """Minus the share of repeated n-grams, as a reward term.

    After the punishment of repeated n-grams of Yeo et al. (arXiv 2502.03373), who take it off the tokens that repeat;
    here it is one number a response.

    Attributes:
        n: tokens of an n-gram. The phrases of a derivation come again; spans of tens of tokens do in loops only.

    Raises:
        SettingError: n is not positive.
    """

    n: int

    bounds: ClassVar[tuple[float, float]] = (-1.0, 0.0)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SettingError(f"reward_terms.repetition.term.n={self.n} must be 1 or more; 20 finds loops.")

    def __call__(self, responses: Responses) -> Tensor:
        """Returns the punishment of each response, above -1 and up to 0; float32 [N]."""
        shares = [repeated_share(rollout.response_ids, self.n) for rollout in responses.rollouts]
        return -torch.tensor(shares, dtype=torch.float32)
