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
"""Below it a gradient sinks into the eps of Adam."""
_SHRUNK = 0.03
"""Below it advantages that divide by std + eps have lost their scale: the largest of a group is near 1, or above."""


def largest(advantages: Iterable[Tensor]) -> float:
    """Returns the largest size of any advantage; 0 where there is none, or none that counts (NaN)."""
    values = [one.flatten() for one in advantages]
    if not any(one.numel() for one in values):
        return 0.0
    return float(torch.cat(values).abs().nan_to_num(0.0, posinf=torch.inf).max())  # read from a device once


class AdvantageWarnings:
    """Says once that nearly nothing is learned, because rewards differ by too little.

    Args:
        unit_spread: `ngrpo.algo.policy_loss.Algorithm.unit_spread`.
    """

    def __init__(self, unit_spread: bool = False) -> None:
        self._least = _SHRUNK if unit_spread else _SMALL
        self._told = False

    def __call__(self, advantages: Iterable[Tensor], reduce: Reduce) -> None:
        """Looks at those of an iteration (a collective).

        Args:
            advantages: of this rank's responses; float [A, T] each, NaN where they do not count.
            reduce: over the data ranks.
        """
        if self._told:  # on all ranks alike
            return
        found = float(reduce(torch.tensor(largest(advantages), dtype=torch.float64), "max"))
        if not 0.0 < found < self._least:
            return
        self._told = True
        log.warning(
            "the largest advantage of an iteration is %.3g, so that next to nothing is learned: the rewards of a group "
            "differ by too little; multiply them, in the reward or by reward_terms.<name>.weight",
            found,
        )
