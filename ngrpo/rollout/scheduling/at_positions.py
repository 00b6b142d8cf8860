"""Forks at chosen positions of a response: where it was least sure, or drew a rare token, or was fed a mixture."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.rollout.scheduling.at_share import check_branching
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Tree
from ngrpo.types.rollouts import Rollout


@dataclass(frozen=True)
class ForkAtPositions(Scheduler):
    """Whole responses first; each then forks ``branching - 1`` times, at positions in its first part.

    A fork at a token draws that token anew. Where there are fewer positions than forks, they serve in turn; where there
    is none, forks are at the end of the part.

    Attributes:
        branching: responses that come of one, itself included.
        within: the part, as a share of the length, given tokens not counted; in (0, 1].
    """

    branching: int = 4
    within: float = 0.5

    def __post_init__(self) -> None:
        check_branching(self.branching)
        if not 0 < self.within <= 1:
            raise SettingError(
                f"rollout.scheduler.within={self.within} is no share of a response; choose a value in (0, 1]."
            )

    @abstractmethod
    def positions(self, rollout: Rollout, start: int, end: int) -> list[int]:
        """Returns the indices of tokens to fork at, the best first.

        Args:
            rollout: the response.
            start: the first index to choose from.
            end: the last and one.
        """

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        if tree.rounds == 0:
            return [Branch()] * -(-tree.size // self.branching)
        ranked = {leaf: self._ranked(tree.made[leaf].rollout, tree.given) for leaf in tree.leaves}
        forks = [
            Branch(leaf, at[number % len(at)]) for number in range(self.branching - 1) for leaf, at in ranked.items()
        ]
        return forks[: tree.missing]

    def _ranked(self, rollout: Rollout, given: int) -> list[int]:
        # A fork at the first token that is not given would have nothing in common with the response.
        end = given + min(max(1, round(self.within * rollout.generated)), rollout.generated - 1)
        return self.positions(rollout, given + 1, end + 1) or [end]


@dataclass(frozen=True)
class ForkAtSurprise(ForkAtPositions):
    """Forks at the tokens of the lowest probability, ``-log p(o_t)`` largest, of equal ones the first.

    The surprise of a token that was drawn has the entropy of its step as its mean (`ForkAtEntropy`), and needs no
    record of its own. A fork at a rare token is often one back to the likely one.
    """

    reads_log_probs: ClassVar[bool] = True

    def positions(self, rollout: Rollout, start: int, end: int) -> list[int]:
        """See `ForkAtPositions`."""
        log_probs = rollout.log_probs.tolist()
        return sorted(range(start, end), key=lambda index: log_probs[index])


@dataclass(frozen=True)
class ForkAtEntropy(ForkAtPositions):
    """Forks where the distribution of the next token has the highest entropy, of equal ones at the first.

    At the sampling temperature, and of the support where sampling is truncated. Whichever token was drawn there, the
    fork draws another time.
    """

    reads_distributions: ClassVar[bool] = True

    def positions(self, rollout: Rollout, start: int, end: int) -> list[int]:
        """See `ForkAtPositions`."""
        assert rollout.distributions is not None
        entropy = rollout.distributions.entropy.tolist()
        return sorted(range(start, end), key=lambda index: -entropy[index])


@dataclass(frozen=True)
class ForkAtMixtures(ForkAtPositions):
    """Forks at the first mixed positions: the branch decides anew what stands there, by chance no mixture at all."""

    def positions(self, rollout: Rollout, start: int, end: int) -> list[int]:
        """See `ForkAtPositions`."""
        indices = (rollout.mixture.positions - len(rollout.prompt_ids)).tolist()
        return [index for index in indices if start <= index < end]

    def refusal(self, strategy: Exploration) -> str | None:
        """See `Scheduler`."""
        return super().refusal(strategy) or (None if strategy.mixes else "it mixes nothing")
