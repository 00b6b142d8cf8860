"""Rollout correction: importance weights for the distance of the engine's log-probs from the trainer's.

``w = exp(lp_old_trainer - lp_rollout)`` with the same weights in both, so that the difference is one of kernels and
number formats only; the weight multiplies the surrogate and is a constant in backward. It is never renormalised. A
token that is masked stays in the denominators, one that is rejected leaves them. Bounds: ``floor <= w <= cap``.

Names in use: TIS truncates token weights at 2, IcePop (arXiv 2510.18855) masks token weights outside 0.5 to 5, MIS
masks those of sequences above 3 (TRL's code), and rejection sampling rejects sequences by their geometric mean. verl's
code tests ``-log w`` in some of its options, so that its "0.6_1.4" keeps w in 1 / 1.4 to 1 / 0.6.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ngrpo.algo.ratio import LOG_RATIO_LIMIT
from ngrpo.algo.segments import per_sequence_mean, per_sequence_sum, sequence_index
from ngrpo.errors import SettingError


def _token(log_weight: Tensor, lengths: Tensor) -> Tensor:
    return log_weight


def _sequence(log_weight: Tensor, lengths: Tensor) -> Tensor:
    return per_sequence_sum(log_weight, lengths)[sequence_index(lengths, log_weight.shape[0])]


def _geometric(log_weight: Tensor, lengths: Tensor) -> Tensor:
    return per_sequence_mean(log_weight, lengths)[sequence_index(lengths, log_weight.shape[0])]


_LEVELS = {"token": _token, "sequence": _sequence, "geometric": _geometric}


class Correction(NamedTuple):
    """Result of a rollout correction.

    Attributes:
        weight: float [N].
        bounded: bool [N]; a bound acted.
    """

    weight: Tensor
    bounded: Tensor


class RolloutCorrection(ABC):
    """Weighs tokens by how much likelier the trainer finds them than the engine did.

    Attributes:
        rejects: tokens of weight 0 leave the loss in all of its terms, and its denominators. Every rollout is then
            scored before the first step, since denominators must be known before the first microbatch.
    """

    rejects: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, log_weight: Tensor, lengths: Tensor) -> Correction:
        """Returns the weights.

        Args:
            log_weight: float [N], ``lp_old_trainer - lp_rollout``, a constant.
            lengths: int64 [S].
        """


@dataclass(frozen=True)
class NoCorrection(RolloutCorrection):
    """``w = 1``: the old log-probs are the trainer's own, and the mismatch is only logged."""

    def __call__(self, log_weight: Tensor, lengths: Tensor) -> Correction:
        """See `RolloutCorrection`."""
        return Correction(torch.ones_like(log_weight), torch.zeros_like(log_weight, dtype=torch.bool))


@dataclass(frozen=True)
class _Bounded(RolloutCorrection):
    level: str = "token"
    cap: float = 2.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.level not in _LEVELS:
            raise SettingError(f"algo.correction.level={self.level} is not known; choose one of {', '.join(_LEVELS)}.")
        if not self.cap >= 1:
            raise SettingError(
                f"algo.correction.cap={self.cap} would bound the weights of engines that agree; set it above 1."
            )
        if not 0 <= self.floor <= 1:
            raise SettingError(
                f"algo.correction.floor={self.floor} would bound the weights of engines that agree; choose a value in "
                "[0, 1]."
            )

    def __call__(self, log_weight: Tensor, lengths: Tensor) -> Correction:
        """See `RolloutCorrection`."""
        log_weight = _LEVELS[self.level](log_weight, lengths)
        known = log_weight.isfinite()  # an engine may report -inf
        weight = log_weight.nan_to_num(0.0).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
        outside = (weight > self.cap) | (weight < self.floor) | ~known
        return Correction(self._bounded(weight, outside).masked_fill(~known, 0.0), outside)

    @abstractmethod
    def _bounded(self, weight: Tensor, outside: Tensor) -> Tensor:
        """Returns what the weights become, some of which are outside of the bounds; [N], [N] -> [N]."""


@dataclass(frozen=True)
class Truncate(_Bounded):
    """``clamp(w, floor, cap)``: truncated importance sampling (TIS).

    Attributes:
        level: what w is made of: the ratio of the token, the product of the ratios of its sequence (unbiased, of large
            variance) or their geometric mean: token | sequence | geometric.
        cap: largest weight, 2 as a rule.
        floor: smallest.
    """

    def _bounded(self, weight: Tensor, outside: Tensor) -> Tensor:
        return weight.clamp(self.floor, self.cap)


@dataclass(frozen=True)
class Mask(_Bounded):
    """``w where floor <= w <= cap, else 0``: tokens (or sequences) on which engine and trainer differ do not learn.

    Attributes:
        level: as in `Truncate`.
        cap: as there.
        floor: as there.
    """

    def _bounded(self, weight: Tensor, outside: Tensor) -> Tensor:
        return weight.masked_fill(outside, 0.0)


@dataclass(frozen=True)
class Reject(_Bounded):
    """``1 where floor <= w <= cap``, and the others are left out of the loss and of its counts (rejection sampling).

    Attributes:
        level: as in `Truncate`.
        cap: as there.
        floor: as there.
    """

    rejects: ClassVar[bool] = True

    def _bounded(self, weight: Tensor, outside: Tensor) -> Tensor:
        return (~outside).to(weight.dtype)
