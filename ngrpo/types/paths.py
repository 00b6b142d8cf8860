"""Paths of responses that have first tokens in common: which node of a tree each token belongs to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ngrpo.errors import SettingError


@dataclass(frozen=True)
class Path:
    """The nodes of a tree from its root to a leaf, which is a whole response.

    A node is a run of tokens that the same responses have in common. Its number is the same in all of them, and no
    other node of a rollout batch has it.

    Attributes:
        nodes: their numbers; n of them, the leaf's own last.
        starts: index of the response token with which each starts, ascending; n.

    Raises:
        SettingError: they do not fit together.
    """

    nodes: tuple[int, ...]
    starts: tuple[int, ...]

    def __post_init__(self) -> None:
        ascending = all(before < after for before, after in pairwise(self.starts))
        if not self.nodes or len(self.nodes) != len(self.starts) or not ascending:
            raise SettingError(
                f"a path of {len(self.nodes)} nodes starts them at {list(self.starts)}; give each a later start."
            )

    @property
    def depth(self) -> int:
        """The number of forks on the way, n - 1."""
        return len(self.nodes) - 1

    def lengths(self, end: int) -> list[int]:
        """Returns the number of tokens of each node in a response of ``end`` tokens."""
        return [after - before for before, after in pairwise((*self.starts, end))]


def distinct_tokens(paths: Sequence[Path | None], first: Sequence[int], ends: Sequence[int]) -> int:
    """Returns how many tokens responses consist of, those that several have in common counted once.

    Args:
        paths: of each response; None has nothing in common with others.
        first: index of the first token that counts in each.
        ends: number of tokens of each.
    """
    total, seen = 0, set()
    for path, start, end in zip(paths, first, ends, strict=True):
        if path is None:
            total += end - start
            continue
        for node, length in zip(path.nodes, path.lengths(end), strict=True):
            total += 0 if node in seen else length
            seen.add(node)
    return total


def shares(paths: Sequence[Path | None], ends: Sequence[int], counted: Sequence[bool]) -> list[Tensor | None]:
    """Returns 1/k for each token that k of the responses have in common, so that every token counts once in all.

    Args:
        paths: of each response; None has nothing in common with others.
        ends: number of tokens of each.
        counted: whether each is among the k; the shares of others are those that they would have beside them.

    Returns:
        float32 of the tokens from the path's first start on; None of a response without a path.
    """
    return shares_among(paths, ends, members(paths, counted))


def members(paths: Sequence[Path | None], counted: Sequence[bool]) -> Counter[int]:
    """Returns how many of the responses that are counted have each node; those of several ranks add up."""
    return Counter(
        node for path, counts in zip(paths, counted, strict=True) if path is not None and counts for node in path.nodes
    )


def shares_among(paths: Sequence[Path | None], ends: Sequence[int], having: Mapping[int, int]) -> list[Tensor | None]:
    """Returns what `shares` does, for responses of which others are elsewhere; ``having`` is that of `members`."""
    return [
        None
        if path is None
        else torch.tensor([1.0 / max(having.get(node, 0), 1) for node in path.nodes]).repeat_interleave(
            torch.tensor(path.lengths(end))
        )
        for path, end in zip(paths, ends, strict=True)
    ]
