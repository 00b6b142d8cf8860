"""Rollout correction: importance weights for the distance of the engine's log-probs from the trainer's.

``w = exp(lp_old_trainer - lp_rollout)`` with the same weights in both, so that the difference is one of kernels and
number formats only; the weight multiplies the surrogate and is a constant in backward. It is never renormalised, and a
masked token stays in the denominators.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

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
        bounded: bool [N]; the cap acted.
    """

    weight: Tensor
    bounded: Tensor


class RolloutCorrection(ABC):
    """Weighs tokens by how much likelier the trainer finds them than the engine did."""

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
class _Capped(RolloutCorrection):
    level: str = "token"
    cap: float = 2.0

    def __post_init__(self) -> None:
        if self.level not in _LEVELS:
            raise SettingError(f"algo.correction.level={self.level} is not known; choose one of {', '.join(_LEVELS)}.")
        if not self.cap >= 1:
            raise SettingError(
                f"algo.correction.cap={self.cap} would bound the weights of engines that agree; set it above 1."
            )

    def __call__(self, log_weight: Tensor, lengths: Tensor) -> Correction:
        """See `RolloutCorrection`."""
        log_weight = _LEVELS[self.level](log_weight, lengths).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        weight = log_weight.exp()
        return Correction(self._bounded(weight), weight > self.cap)

    @abstractmethod
    def _bounded(self, weight: Tensor) -> Tensor:
        """Returns what the weights become; [N] -> [N]."""


@dataclass(frozen=True)
class Truncate(_Capped):
    """``min(w, cap)``: truncated importance sampling.

    Attributes:
        level: what w is made of: the ratio of the token, the product of the ratios of its sequence (unbiased, of large
            variance) or their geometric mean: token | sequence | geometric.
        cap: C, 2 as a rule.
    """

    def _bounded(self, weight: Tensor) -> Tensor:
        return weight.clamp(max=self.cap)


@dataclass(frozen=True)
class Mask(_Capped):
    """``w where w <= cap, else 0``: tokens (or sequences) that the engine found much too unlikely do not learn.

    Attributes:
        level: as in `Truncate`.
        cap: C, 2 as a rule.
    """

    def _bounded(self, weight: Tensor) -> Tensor:
        return weight.masked_fill(weight > self.cap, 0.0)
