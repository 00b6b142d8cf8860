"""Settings of rollouts."""

import math
from dataclasses import dataclass, field

from ngrpo.errors import SettingError
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.independent import IndependentSamples


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of rollouts (``rollout`` in the configuration, without its engine).

    Attributes:
        group_size: G, rollouts a prompt.
        max_new_tokens: most response tokens.
        temperature: tau of rollouts and of the trainer's log-probs.
        ahead: batches that are prefetched, 0 or 1, with weights as many updates old.
        exact: trainer and engine give a token the same log-prob, bit for bit (`ngrpo.modeling.exact`).
        scheduler: which requests make the rollouts of a prompt.
    """

    group_size: int = 8
    max_new_tokens: int = 64
    temperature: float = 1.0
    ahead: int = 0
    exact: bool = False
    scheduler: Scheduler = field(default_factory=IndependentSamples)

    def __post_init__(self) -> None:
        for name in ("group_size", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise SettingError(f"rollout.{name}={getattr(self, name)} makes no rollout; choose 1 or more.")
        if not 0 < self.temperature < math.inf:
            raise SettingError(
                f"rollout.temperature={self.temperature} cannot divide logits; choose a positive value "
                "(exploration.top_k=1 is greedy decoding)."
            )
        if self.ahead not in (0, 1):
            raise SettingError(f"rollout.ahead={self.ahead} is not supported; choose 0 or 1.")
