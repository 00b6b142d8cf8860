"""Forks at the ends of segments of fixed length (TreePO)."""

from collections.abc import Sequence
from dataclasses import dataclass

from ngrpo.errors import SettingError
from ngrpo.rollout.scheduling.at_share import check_branching
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Tree


@dataclass(frozen=True)
class ForkAtSegments(Scheduler):
    """Responses grow by segments, and every one that goes on forks at a segment's end as long as there is room for G.

    (TreePO, arXiv 2508.17445: as its released script branches, by fixed segments.) Forks are spread evenly over the
    responses that go on. Where all have ended before there are G, what is missing goes on from the end of an earlier
    segment, drawn at random, or from the prompt where there is none. Where a response forks depends on nothing that
    comes later: every response is one that the policy makes by itself. The script also stops repetitive paths; here
    they run to the limit.

    Attributes:
        segment: tokens. The script: 512.
        branching: responses that one goes on as, at most. The script: 2.
        first: responses that start from the prompt. The script: 2 to 8.
    """

    segment: int = 512
    branching: int = 2
    first: int = 2

    def __post_init__(self) -> None:
        check_branching(self.branching)
        for name in ("segment", "first"):
            if getattr(self, name) < 1:
                raise SettingError(f"rollout.scheduler.{name}={getattr(self, name)} makes nothing; choose 1 or more.")

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        if tree.rounds == 0:
            return [self._grown(tree, None)] * min(self.first, tree.size)
        if on := tree.open_ends:
            return [self._grown(tree, number) for number in (on * self.branching)[: tree.missing]]
        ends = [number for number, one in enumerate(tree.made) if not one.whole]
        return [self._grown(tree, self._earlier(tree, ends, number)) for number in range(tree.missing)]

    def _grown(self, tree: Tree, parent: int | None) -> Branch:
        at = tree.given if parent is None else tree.made[parent].rollout.length
        return Branch(parent, at, at + self.segment)

    @staticmethod
    def _earlier(tree: Tree, ends: Sequence[int], number: int) -> int | None:
        return ends[int(tree.fraction(tree.rounds, number) * len(ends))] if ends else None
