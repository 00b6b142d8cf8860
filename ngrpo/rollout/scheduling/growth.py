"""The growth of trees: branches become requests, and their rollouts the responses of a tree."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Response, Tree
from ngrpo.types.distributions import Distributions
from ngrpo.types.paths import Path, distinct_tokens
from ngrpo.types.rollouts import Prefix, Request, Rollout, StopReason
from ngrpo.types.support import Support

Generate = Callable[[list[Request]], list[Rollout]]
"""Makes a rollout a request."""


class GrowingTree:
    """The responses to one prompt, while they are made.

    Keys of branches come from the key of the request that made the last token in common, the number of tokens in common
    and how many branches were asked for there before: from nothing that is made beside the tree.

    Args:
        roots: the G requests of the prompt as they would be made independently; those that start anew take their keys.
        limit: most response tokens.
        scheduler: asks for branches.
    """

    def __init__(self, roots: Sequence[Request], limit: int, scheduler: Scheduler) -> None:
        self.tree = Tree(request_key(roots[0].key, len(roots)), len(roots), limit, roots[0].given)
        self._roots = list(roots)
        self._scheduler = scheduler
        self._asked: dict[tuple[int, int], int] = {}
        self._prefixes: dict[tuple[int, int], Prefix] = {}
        self._generated = 0

    def ask(self) -> list[tuple[Branch, Request]]:
        """Returns the scheduler's next branches with their requests; none when the tree has grown.

        Raises:
            SettingError: a branch is none, or there are not as many whole responses as are wanted.
        """
        branches = list(self._scheduler.branches(self.tree))
        wrong = next((one for one in branches if not isinstance(one, Branch)), None)
        if wrong is not None:
            raise self._refused(f"returns a {type(wrong).__name__} instead of a Branch")
        if bool(branches) is (self.tree.missing == 0) or self.tree.rounds > self.tree.limit * self.tree.size:
            found = f"{len(self.tree.leaves)} whole responses of {self.tree.size}"
            raise self._refused(f"asks for {len(branches)} branches in round {self.tree.rounds + 1}, after {found}")
        return [(branch, self._request(branch)) for branch in branches]

    def add(self, asked: Sequence[tuple[Branch, Request]], rollouts: Sequence[Rollout]) -> None:
        """Adds the rollouts of what was asked for.

        Raises:
            SettingError: there are more whole responses than are wanted.
        """
        made = [self._response(*one, rollout) for one, rollout in zip(asked, rollouts, strict=True)]
        tree = replace(self.tree, rounds=self.tree.rounds + 1, made=(*self.tree.made, *made))
        self.tree = replace(tree, given_up=frozenset(self._scheduler.given_up(tree)))
        self._generated += sum(rollout.generated for rollout in rollouts)
        if self.tree.missing < 0:
            raise self._refused(f"asks for {len(self.tree.leaves)} whole responses of {self.tree.size}")

    @property
    def leaves(self) -> list[Rollout]:
        """The whole responses, with their paths."""
        return with_paths([self.tree.made[number] for number in self.tree.leaves])

    @property
    def pruned_tokens(self) -> int:
        """Tokens that were generated and are in no whole response."""
        leaves = self.leaves
        starts, ends = [one.prefix_length for one in leaves], [one.length for one in leaves]
        return self._generated - distinct_tokens([one.path for one in leaves], starts, ends)

    def _request(self, branch: Branch) -> Request:
        start, forced, likeliest = self._start(branch), branch.forced_token, branch.likeliest
        return replace(start, max_new_tokens=branch.until, forced_token=forced, likeliest=likeliest)

    def _start(self, branch: Branch) -> Request:
        """Returns a request with key and prefix."""
        parent = self._parent(branch)
        if branch.until is not None and branch.until <= max(branch.at, self.tree.given):
            raise self._refused(f"asks for a branch at token {branch.at} that ends at {branch.until}")
        if parent is None:
            number = self._count(0, 0)
            root = self._roots[number % len(self._roots)]
            key = root.key if number < len(self._roots) else request_key(root.key, number)
            return replace(root, key=key)
        maker = parent.maker(branch.at - 1)
        number = self._count(maker, branch.at)
        ended = parent.whole or branch.at != parent.rollout.length
        goes_on = number == 0 and not ended and branch.forced_token is None
        prefix = self._prefixes.setdefault((maker, branch.at), parent.rollout.cut(branch.at))
        key = maker if goes_on else request_key(maker, branch.at, number)
        return replace(self._roots[0], key=key, prefix=prefix)

    def _count(self, maker: int, at: int) -> int:
        """Returns how many branches were asked for at this place before."""
        number = self._asked.get((maker, at), 0)
        self._asked[maker, at] = number + 1
        return number

    def _parent(self, branch: Branch) -> Response | None:
        if branch.at <= self.tree.given:
            return None
        if branch.parent is None or not 0 <= branch.parent < len(self.tree.made):
            raise self._refused(f"asks for a branch of response {branch.parent} of {len(self.tree.made)}")
        parent = self.tree.made[branch.parent]
        last = parent.rollout.length - parent.whole
        if branch.at > last:
            raise self._refused(f"asks for a branch at token {branch.at} of a response that can have one up to {last}")
        return parent

    def _response(self, branch: Branch, request: Request, rollout: Rollout) -> Response:
        parent, start = self._parent(branch), rollout.prefix_length
        unlimited = branch.until is None or branch.until >= self.tree.limit
        whole = unlimited or rollout.stop_reason is StopReason.STOP or rollout.length >= self.tree.limit
        if parent is None:
            return Response(rollout, branch, whole, ((request.key, start),))
        log_probs = torch.cat((parent.rollout.log_probs[:start], rollout.log_probs[start:]))
        support = _joined(parent.rollout.support, rollout.support, start)
        joined = replace(
            rollout,
            log_probs=log_probs,
            support=support,
            distributions=_of_both(parent.rollout.distributions, rollout.distributions, start),
            prefix_length=self.tree.given,
        )
        kept = tuple(origin for origin in parent.origins if origin[1] < start)
        own = () if kept[-1][0] == request.key else ((request.key, start),)
        return Response(joined, branch, whole, kept + own)

    def _refused(self, fault: str) -> SettingError:
        return SettingError(f"rollout.scheduler={type(self._scheduler).__name__} {fault}; correct its branches.")


def _joined(first: Support | None, rest: Support | None, start: int) -> Support | None:
    """Returns the supports of a response whose first ``start`` tokens are another's."""
    if first is None or rest is None:
        return None
    return Support.cat([first.before(start), rest.after(start)])


def _of_both(first: Distributions | None, rest: Distributions | None, start: int) -> Distributions | None:
    """Returns the distributions of a response whose first ``start`` tokens are another's."""
    if first is None or rest is None:
        return None
    return Distributions(*(torch.cat((one[:start], other[start:])) for one, other in zip(first, rest, strict=True)))


def grow(scheduler: Scheduler, roots: Sequence[Sequence[Request]], limit: int, generate: Generate) -> list[GrowingTree]:
    """Grows the trees of all prompts, a round of each beside one another.

    Args:
        scheduler: asks for branches.
        roots: the G requests of each prompt, see `GrowingTree`.
        limit: most response tokens.
        generate: called once a round.
    """
    trees = [GrowingTree(requests, limit, scheduler) for requests in roots]
    while any(asked := [tree.ask() for tree in trees]):
        made = generate([request for pairs in asked for _, request in pairs])
        ends = [0, *accumulate(len(pairs) for pairs in asked)]
        for tree, pairs, (start, end) in zip(trees, asked, pairwise(ends), strict=True):
            if pairs:
                tree.add(pairs, made[start:end])
    return trees


def with_paths(leaves: Sequence[Response]) -> list[Rollout]:
    """Returns whole responses with the nodes that they have in common; those that have none get no path."""
    return [_with_path(one, [common(one, other) for other in leaves if other is not one]) for one in leaves]


def _with_path(leaf: Response, shared: Sequence[int]) -> Rollout:
    first = leaf.rollout.prefix_length
    starts = (first, *sorted({end for end in shared if end > first}))
    if len(starts) == 1:
        return leaf.rollout
    return replace(leaf.rollout, path=Path(tuple(request_key(leaf.maker(start), start) for start in starts), starts))


def common(one: Response, other: Response) -> int:
    """Returns how many first tokens two responses have from the same requests, given ones included; else 0."""
    ends = [[*(start for _, start in each.origins[1:]), each.rollout.length] for each in (one, other)]
    shared = 0
    for mine, theirs, end, their_end in zip(one.origins, other.origins, *ends, strict=False):
        if mine != theirs:
            break
        shared = min(end, their_end)
        if end != their_end:
            break
    return shared
