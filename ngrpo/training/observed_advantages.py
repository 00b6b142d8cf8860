"""The advantages of an iteration, held to what an optimiser can use.

Too small ones are warned of here. Too large ones make a gradient that is not finite, of which
`ngrpo.training.nonfinite_guard` says so.
"""

import logging
from collections.abc import Iterable

import torch
from torch import Tensor

from ngrpo.algo.moments import Reduce

log = logging.getLogger(__name__)

_SMALL = 1e-4
"""Below it a gradient sinks into the eps of Adam, and advantages that divide by std + eps have lost their scale."""


def largest(advantages: Iterable[Tensor]) -> float:
    """Returns the largest size of any advantage; 0 where there is none, or none that counts (NaN)."""
    return max(
        (float(one.abs().nan_to_num(0.0, posinf=torch.inf).max()) for one in advantages if one.numel()), default=0.0
    )


class AdvantageWarnings:
    """Says once that nearly nothing is learned, because rewards differ by too little."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, advantages: Iterable[Tensor], reduce: Reduce) -> None:
        """Looks at those of an iteration (a collective).

        Args:
            advantages: of this rank's responses; float [A, T] each, NaN where they do not count.
            reduce: over the data ranks.
        """
        found = float(reduce(torch.tensor(largest(advantages), dtype=torch.float64), "max"))
        if self._told or not 0.0 < found < _SMALL:
            return
        self._told = True
        log.warning(
            "the largest advantage of an iteration is %.3g, so that next to nothing is learned: the rewards of a group "
            "differ by too little; multiply them, in the reward or by reward_terms.<name>.weight",
            found,
        )
