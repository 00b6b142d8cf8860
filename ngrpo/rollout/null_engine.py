"""The stand-in for an engine on ranks that get their rollouts from another."""

from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.rollout.engine import Report
from ngrpo.types.rollouts import Request, Rollout, Sampling


class NullEngine:
    """A `RolloutEngine` without rollouts: it takes part in the transfer of weights, which is a collective."""

    several_ranks = True
    concurrent = True
    tf32 = False
    checked_as = ""
    dtype = torch.float32

    def start(self, device: torch.device) -> None:
        """Does nothing."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        """Is not to be called.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("the first rank of the tensor group makes its rollouts")

    def check_load(self, strategy: Exploration, requests: int, max_new_tokens: int) -> None:
        """Finds nothing."""

    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Iterates to the end and keeps nothing."""
        deque(tensors, maxlen=0)

    def sync_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Does the same."""
        self.sync_weights(tensors)

    def embedding(self) -> Tensor:
        """Is not to be called.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("the first rank of the tensor group serves the weights")

    def sleep(self) -> None:
        """Does nothing."""

    def wake(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
