"""The tree of responses to a prompt, as far as it has grown."""

from dataclasses import dataclass
from functools import cached_property

from ngrpo.exploration.random import request_key
from ngrpo.types.rollouts import Rollout


@dataclass(frozen=True)
class Branch:
    """A response that a scheduler asks for: the first tokens of another one, and what follows under a key of its own.

    The one that goes on where an unfinished response stopped keeps its key and makes the tokens that it would have had
    without the stop; whatever else is asked for at the same place differs.

    Attributes:
        parent: the other one's number in `Tree.made`; None for none, with ``at`` 0.
        at: how many of its tokens they have in common, those that were given included; no more than these starts anew.
        until: most response tokens for now, after which it is unfinished; None, or more than the tree's limit, for as
            many as there may be.
        forced_token: what it has at ``at``, instead of a drawn token; None for none. It is trained on as any other,
            with its ordinary log-prob.
        likeliest: its own tokens are the likeliest instead of drawn ones, see `ngrpo.types.rollouts.Request`.
    """

    parent: int | None = None
    at: int = 0
    until: int | None = None
    forced_token: int | None = None
    likeliest: bool = False


@dataclass(frozen=True)
class Response:
    """A response of a tree.

    Attributes:
        rollout: all of it, with the log-probs of what it has from others.
        branch: what it was asked for by.
        whole: whether it has ended, by a stop token or at the length limit.
        origins: the keys of the requests that made its tokens, and the index of the first that each made; ascending.
    """

    rollout: Rollout
    branch: Branch
    whole: bool
    origins: tuple[tuple[int, int], ...]

    def maker(self, index: int) -> int:
        """Returns the key of the request that made the token at ``index``."""
        return next(key for key, start in reversed(self.origins) if start <= index)


@dataclass(frozen=True)
class Tree:
    """What a scheduler sees of a prompt; it depends on nothing else that is made beside it.

    Attributes:
        key: 63-bit key of whatever is drawn for this tree.
        size: G, the whole responses that are wanted.
        limit: most tokens of a response.
        given: tokens with which every response starts, which are given.
        rounds: how often branches were asked for.
        made: the responses so far, unfinished ones too, in the order in which they were asked for.
        given_up: numbers of whole responses that the scheduler has given up.
    """

    key: int
    size: int
    limit: int
    given: int = 0
    rounds: int = 0
    made: tuple[Response, ...] = ()
    given_up: frozenset[int] = frozenset()

    @cached_property
    def leaves(self) -> list[int]:
        """Numbers of the whole responses, without those that were given up."""
        return [number for number, one in enumerate(self.made) if one.whole and number not in self.given_up]

    @cached_property
    def open_ends(self) -> list[int]:
        """Numbers of the unfinished responses that nothing goes on from."""
        left = {one.branch.parent for one in self.made}
        return [number for number, one in enumerate(self.made) if not one.whole and number not in left]

    @property
    def missing(self) -> int:
        """Whole responses that are still wanted."""
        return self.size - len(self.leaves)

    def fraction(self, *parts: int) -> float:
        """Returns a draw from [0, 1) that is named by ``parts``: the same at every call and in every run."""
        return request_key(self.key, *parts) / 2**63
