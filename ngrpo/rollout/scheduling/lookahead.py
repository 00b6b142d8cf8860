"""Forks that are given up where they soon read like what they forked off (LATR)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import ClassVar

from ngrpo.errors import SettingError
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Response, Tree


@dataclass(frozen=True)
class ForkWithLookahead(Scheduler):
    """Responses fork where the policy was unsure, the earliest places first; forks that read alike are given up.

        fork at o_t: p(o_t) < probability             kept: edit distance(own, parent's next r tokens) / r >= distance

    (LATR, arXiv 2510.24302, by its released code.) A fork is made r tokens long, compared with as many tokens of the
    response that it forked off, and goes on to its end or is given up; its tokens count as generated. Forks fork too.
    Where no place is left, what is missing of G is sampled from the prompt.

    LATR itself forks while responses grow, and forces tokens instead of drawing them:

        candidates = the m likeliest tokens, m = 2            c forks iff p(c) > tau_abs and p(top) - p(c) < tau_rel

    with tau_abs = 0.25 and tau_rel = 0.15 (for mathematics 0.15 and 0.25); p is the model's own, the response takes the
    top token, the fork takes c. Engines record the probability of the drawn token alone, so that here

    - p(o_t) < ``probability`` = 1 - tau_abs is what all places of LATR have in common, whichever token was drawn there;
      others are added to them, where no second token is likely enough or near enough to the top one;
    - p is at the sampling temperature, and of the token's support where sampling is truncated;
    - response and fork draw from the policy, so that a fork may draw the same token again;
    - places are looked for in whole responses, the earliest first, and not in all live ones at each step;
    - forks are compared by edit distance alone (for mathematics LATR matches suffixes, or takes ROUGE-L);
    - every group is a tree (LATR has fewer of them as training goes on).

    Attributes:
        lookahead: r, in tokens. The scripts: 20 to 50.
        distance: smallest share of r that makes a fork differ. The scripts: 0.4.
        probability: of the drawn token, below which its place is one to fork at. By the scripts: 0.75, for mathematics
            0.85.
        within: the part of a response to fork in, as a share of its length, given tokens not counted; in (0, 1].
        first: responses that start from the prompt.
    """

    reads_log_probs: ClassVar[bool] = True
    lookahead: int = 20
    distance: float = 0.4
    probability: float = 0.75
    within: float = 0.5
    first: int = 1

    def __post_init__(self) -> None:
        for name in ("lookahead", "first"):
            if getattr(self, name) < 1:
                raise SettingError(f"rollout.scheduler.{name}={getattr(self, name)} makes nothing; choose 1 or more.")
        for name in ("distance", "probability", "within"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(
                    f"rollout.scheduler.{name}={getattr(self, name)} is no share; choose a value in (0, 1]."
                )

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        if tree.rounds == 0:
            return [Branch()] * min(self.first, tree.size)
        kept = [number for number in tree.open_ends if self._differs(tree, tree.made[number])]
        on = [Branch(number, tree.made[number].rollout.length) for number in kept]
        forks = [Branch(leaf, at, at + self.lookahead) for at, leaf in self._places(tree)]
        further = [*on, *forks[: tree.missing - len(on)]]
        return further or [Branch()] * tree.missing

    def _differs(self, tree: Tree, fork: Response) -> bool:
        start, end, parent = fork.branch.at, fork.rollout.length, fork.branch.parent
        assert parent is not None  # what starts from the prompt is not stopped
        own, other = (one.response_ids[start:end].tolist() for one in (fork.rollout, tree.made[parent].rollout))
        return differs(own, other, self.distance)

    def _places(self, tree: Tree) -> list[tuple[int, int]]:
        """Returns where to fork, as token and response, without what was tried; the earliest first."""
        tried = {(one.branch.at, one.branch.parent) for one in tree.made}
        return sorted(
            (at, leaf) for leaf in tree.leaves for at in self._unsure(tree, tree.made[leaf]) if (at, leaf) not in tried
        )

    def _unsure(self, tree: Tree, leaf: Response) -> list[int]:
        # What another request made is among that one's own; the first of its own tokens is the fork itself.
        start, end = leaf.origins[-1][1] + 1, tree.given + round(self.within * leaf.rollout.generated)
        bound, end = log(self.probability), min(end, leaf.rollout.length - 1)
        log_probs = leaf.rollout.log_probs.tolist()
        return [at for at in range(start, end + 1) if log_probs[at] < bound]


def differs(own: Sequence[int], other: Sequence[int], distance: float) -> bool:
    """Says whether the edit distance of r tokens to others is at least ``distance`` r."""
    return edit_distance(own, other) >= distance * len(own)


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many insertions, deletions and replacements of a token make one sequence the other (Levenshtein)."""
    before = list(range(len(other) + 1))
    for row, token in enumerate(one, start=1):
        now = [row]
        for column, compared in enumerate(other, start=1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (token != compared)))
        before = now
    return before[-1]
