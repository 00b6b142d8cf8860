"""Warnings of rewards of which nothing is learned, or something else than they say."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ngrpo.algo.groups import Groups

log = logging.getLogger(__name__)

_ROUNDING = 1e-12
"""Of rewards, as a share: what they differ by in float64 below it is rounding of the sums that made them."""
_ROUNDED = "rounded"
_MOST_LOST = 0.01
"""Share of the spread of a group's rewards that rounding to float32 may change without a word."""


class RewardWarnings:
    """Says, by setting and response, which rewards are NaN, infinite, or too close together for float32.

    Of what excludes a response, or is rounded, each once; of an infinite reward at each call, as each skips a step.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, summands: Mapping[str, Tensor], keys: Sequence[int], at: Callable[[int], str]) -> None:
        """Looks at the rewards of N responses.

        Args:
            summands: the weighted values of each setting, ``reward`` and ``reward_terms.<name>``; float64 [N] each.
            keys: of the problem that each response answers; N. Responses with equal keys are a group.
            at: says which response is meant.
        """
        for name, values in summands.items():
            self._of_nan(name, values, at)
        total = sum(summands.values(), start=torch.zeros(len(keys), dtype=torch.float64))
        infinite = torch.stack([total.float(), *summands.values()]).isinf().any(0)
        if infinite.any():
            _of_infinite(summands, int(infinite.nonzero()[0]), at)
        self._of_rounding(total.masked_fill(infinite, math.nan), keys, at)

    def _of_nan(self, name: str, values: Tensor, at: Callable[[int], str]) -> None:
        if name in self._told or not values.isnan().any():
            return
        self._told.add(name)
        log.warning(
            "%s returned nan%s; such responses are excluded from the loss and from their group's statistics, reward/"
            "left_out tells how many: let it return a number for each if that is not meant",
            name,
            at(int(values.isnan().nonzero()[0])),
        )

    def _of_rounding(self, total: Tensor, keys: Sequence[int], at: Callable[[int], str]) -> None:
        groups = Groups.of(keys)
        table = groups.table(total)
        unscored = table.isnan()
        size = table.abs().masked_fill(unscored, 0.0).amax(-1)
        spread = table.masked_fill(unscored, -math.inf).amax(-1) - table.masked_fill(unscored, math.inf).amin(-1)
        lost = (table.float().double() - table).abs().masked_fill(unscored, 0.0).amax(-1)
        blurred = (spread > _ROUNDING * size) & (lost > _MOST_LOST * spread)
        if _ROUNDED in self._told or not blurred.any():
            return
        self._told.add(_ROUNDED)
        row = int(blurred.nonzero()[0])
        log.warning(
            "rewards of one group%s differ by %g and are as large as %g: float32, in which they are compared, rounds "
            "that difference; take off what they have in common, or scale them",
            at(int((groups.rows == row).nonzero()[0])),
            float(spread[row]),
            float(size[row]),
        )


def _of_infinite(summands: Mapping[str, Tensor], index: int, at: Callable[[int], str]) -> None:
    parts = [f"{name}={float(values[index]):g}" for name, values in summands.items() if float(values[index])]
    log.warning(
        "the reward%s is infinite in float32 (%s), so that its optimiser step is skipped: let them be finite, and their"
        " sum below %.2g",
        at(index),
        ", ".join(parts),
        torch.finfo(torch.float32).max,
    )
