"""The entropy bonus whose coefficient follows the entropy."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from ngrpo.algo.learned_state import LearnedState
from ngrpo.errors import SettingError


class EntropyCoefficient(LearnedState, ABC):
    """A coefficient of the entropy bonus that changes from one optimiser step to the next."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """The coefficient of the next step, 0 or above."""

    @abstractmethod
    def update(self, entropy: float) -> None:
        """Follows a step that was made.

        Args:
            entropy: mean over the step's tokens on all ranks, in nats at the temperature of the rollouts.
        """


@dataclass
class AdaptiveEntropy(EntropyCoefficient):
    """Raises the coefficient of the entropy bonus while the entropy is at its target or below, and lowers it above.

        c' = clamp(c + delta if e <= target else c - delta, low, high)        alpha = c where e <= target, else 0

    (Skywork-OR1, arXiv 2505.22312, section 3.2.) e is the mean entropy of an optimiser step's tokens on all ranks, in
    nats at the temperature of the rollouts, alpha the coefficient of the step after it; the first step has none. The
    paper takes e of the same step, keeps c at equality, and has no bounds, so that its coefficient turns negative while
    the entropy is above the target. The order, the equality and ``high`` are those of TRL's code. Skywork's code has
    steps of 0.0001 and a coefficient of at most 0.005.

    Attributes:
        target: entropy in nats.
        delta: change of the coefficient a step.
        low: its smallest value.
        high: its largest.
        coefficient: c, after the steps so far.
        last: e of the last step; None before the first.
    """

    target: float = 0.2
    delta: float = 0.005
    low: float = 0.0
    high: float = 1.0
    coefficient: float = field(default=0.0, init=False)
    last: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.target > 0:
            raise SettingError(f"algo.adaptive_entropy.target={self.target} is no entropy to hold; choose some nats.")
        if not self.delta > 0:
            raise SettingError(f"algo.adaptive_entropy.delta={self.delta} changes nothing; choose a positive number.")
        if not 0 <= self.low <= self.high:
            raise SettingError(
                f"algo.adaptive_entropy.low={self.low} and algo.adaptive_entropy.high={self.high} are no bounds of a "
                "coefficient; choose 0 <= low <= high."
            )
        self.coefficient = self.low

    @property
    def weight(self) -> float:
        """Alpha, the coefficient of the next step."""
        return self.coefficient if self.last is not None and self.last <= self.target else 0.0

    def update(self, entropy: float) -> None:
        """Follows the mean entropy of a step; one that is not finite, of a step without tokens, changes nothing."""
        if not math.isfinite(entropy):
            return
        changed = self.coefficient + (self.delta if entropy <= self.target else -self.delta)
        self.coefficient, self.last = min(max(changed, self.low), self.high), entropy

    def state_dict(self) -> dict[str, Any]:
        """Holds coefficient and last entropy."""
        return {"coefficient": self.coefficient, "last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores them."""
        self.coefficient, self.last = state["coefficient"], state["last"]
