"""Independent samples: every response starts from the prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Tree


@dataclass(frozen=True)
class IndependentSamples(Scheduler):
    """G responses from the prompt, which have nothing in common."""

    one_round: ClassVar[bool] = True
    forks: ClassVar[bool] = False
    prefixes: ClassVar[bool] = False

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        return [Branch()] * tree.missing
