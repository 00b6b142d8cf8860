"""Forks at shares of the length of a response."""

from collections.abc import Sequence
from dataclasses import dataclass

from ngrpo.errors import SettingError
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Tree


@dataclass(frozen=True)
class ForkAtShare(Scheduler):
    """Every response forks into ``branching`` at each share of its length, until there are G.

    As TreePO (arXiv 2508.17445) branches after fixed segments, but a share of what was generated is the same place of a
    short and of a long response. Of responses of equal length L, those of one fork cost ``share + (1 - share)
    branching`` times L instead of ``branching`` times L: 37.5 % less with 4 at 0.5. Where a response ends decides where
    it forks, so that beginnings of long responses are seen more often than the policy makes them.

    Attributes:
        branching: responses that come of one, itself included.
        shares: of the length of a response, given tokens not counted, one round after the other; each in (0, 1).
    """

    branching: int = 4
    shares: Sequence[float] = (0.5,)

    def __post_init__(self) -> None:
        check_branching(self.branching)
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise SettingError(
                f"rollout.scheduler.shares={list(self.shares)} are no places inside a response; choose some in (0, 1)."
            )

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        if tree.rounds == 0:
            return [Branch()] * -(-tree.size // self.branching ** len(self.shares))
        share = self.shares[min(tree.rounds, len(self.shares)) - 1]
        places = [tree.given + int(share * tree.made[leaf].rollout.generated) for leaf in tree.leaves]
        forks = [Branch(leaf, at) for leaf, at in zip(tree.leaves, places, strict=True)]
        return (forks * (self.branching - 1))[: tree.missing]


def check_branching(branching: int) -> None:
    """Refuses less than two branches."""
    if branching < 2:
        raise SettingError(f"rollout.scheduler.branching={branching} forks nothing; choose 2 or more.")
