"""A scheduler of your own: one response, and the others fork off it at places that are drawn from its last part."""

from collections.abc import Sequence
from dataclasses import dataclass

from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Tree


@dataclass(frozen=True)
class LateForks(Scheduler):
    """Forks at places drawn uniformly from the last part of the first response.

    Attributes:
        earliest: where that part begins, as a share of the length.
    """

    earliest: float = 0.5

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """Asks for one response from the prompt, and in the next round for all others."""
        if tree.rounds == 0:
            return [Branch()]
        length = tree.made[0].rollout.length
        shares = [self.earliest + (1 - self.earliest) * tree.fraction(number) for number in range(tree.missing)]
        return [Branch(parent=0, at=int(share * length)) for share in shares]
