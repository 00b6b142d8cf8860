"""Curricula: the choice of the problems that are trained on in each epoch and iteration."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.types.problems import PassRate, Problem

_FULL = 2**64


class Curriculum(ABC):
    """The contract.

    A problem that is not admitted is passed over in this epoch and comes again in the next. Decisions follow from the
    arguments, the seed and what was reported, so they are the same on every rank and after a resume.

    Attributes:
        needs_difficulty: whether problems must declare one; rows that do not are excluded.
        needs_epochs: whether it does nothing on problems that never come twice.
    """

    needs_difficulty = False
    needs_epochs = False

    @abstractmethod
    def admits(self, problem: Problem, epoch: int, iteration: int, seed: int) -> bool:
        """Say whether to train on `problem`, met in this epoch of its source, in this iteration."""

    def report(self, rates: Sequence[PassRate]) -> None:  # noqa: B027
        """Learn how the policy did in an iteration."""

    def state_dict(self) -> dict[str, Any]:
        """Return what was learnt, primitives only."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Take over what `state_dict` returned."""


class EveryProblem(Curriculum):
    """No curriculum: every problem once an epoch."""

    def admits(self, problem: Problem, epoch: int, iteration: int, seed: int) -> bool:
        """Say yes."""
        return True


@dataclass
class RisingDifficulty(Curriculum):
    """Easy problems first: admits difficulties up to a limit that rises linearly, then everything.

    ``limit(i) = first + (last - first) * i / iterations`` on the scale that the data declares.

    Attributes:
        first: the limit in the first iteration.
        last: the limit when everything is about to be admitted.
        iterations: from this one on, everything is.
    """

    first: float = 1.0
    last: float = 5.0
    iterations: int = 100

    needs_difficulty = True

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.last < self.first:
            raise SettingError(
                f"data.curriculum.first={self.first}, last={self.last}, iterations={self.iterations} is no rising"
                " schedule; give last >= first and iterations >= 1."
            )

    def limit(self, iteration: int) -> float:
        """Return the highest difficulty admitted."""
        if iteration >= self.iterations:
            return math.inf
        return self.first + (self.last - self.first) * iteration / self.iterations

    def admits(self, problem: Problem, epoch: int, iteration: int, seed: int) -> bool:
        """Say whether the problem is easy enough by now."""
        return problem.difficulty is not None and problem.difficulty <= self.limit(iteration)


@dataclass
class SampledByPassRate(Curriculum):
    """Problems that are sometimes solved come more often than those always or never solved.

    A problem whose last group had pass rate p is trained on in an epoch with probability
    ``floor + (1 - floor) * 4 p (1 - p)``; 4 p (1 - p) is the variance of its reward over the largest possible, which
    "Learning to Reason at the Frontier of Learnability" (arXiv 2502.12272) calls learnability. Here nothing is sampled
    beforehand: training's own rollouts are what is measured, and a problem not met yet is always admitted.

    Attributes:
        floor: probability of those with p = 0 or 1, above 0: the policy changes, and they may become learnable.
        rates: the last pass rate of each problem met, by key.
    """

    floor: float = 0.1
    rates: dict[int, float] = field(default_factory=dict, init=False)

    needs_epochs = True

    def __post_init__(self) -> None:
        if not 0 < self.floor <= 1:
            raise SettingError(f"data.curriculum.floor={self.floor} is no probability above 0; choose one, e.g. 0.1.")

    def probability(self, key: int) -> float:
        """Return how likely the problem is admitted in its next epoch."""
        rate = self.rates.get(key, 0.5)
        return self.floor + (1 - self.floor) * 4 * rate * (1 - rate)

    def admits(self, problem: Problem, epoch: int, iteration: int, seed: int) -> bool:
        """Draw from (seed, key, epoch) alone."""
        digest = hashlib.blake2b(f"{seed},{problem.key},{epoch}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / _FULL < self.probability(problem.key)

    def report(self, rates: Sequence[PassRate]) -> None:
        """Keep the last rate of each problem; of two in one iteration the higher, on any number of ranks."""
        self.rates.update((met.key, met.rate) for met in sorted(rates))

    def state_dict(self) -> dict[str, Any]:
        """Return the rates as [key, rate] pairs."""
        return {"rates": [[key, rate] for key, rate in self.rates.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over rates; a run that went without this curriculum until now has none."""
        self.rates = dict(state.get("rates", []))
