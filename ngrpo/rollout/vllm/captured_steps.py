"""CUDA graphs of what lies between two forwards of a burst: choosing, recording, and preparing the next step."""

import logging
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ngrpo.rollout.vllm.burst_step import BurstStep
from ngrpo.utils.cuda_graphs import captured, memory_pool

log = logging.getLogger(__name__)

_RUNS_BEFORE = 2
"""Runs of a step before it is captured: the first compile, and a batch that comes once is not worth a graph."""

_MOST_COUNTED = 64
"""Kinds of steps whose runs are counted: a server's sessions come and go, and with them the memory that they lie in."""

Memories = tuple[int, ...]
"""Where the live sessions lie (see `MixingState.memories`)."""


class CapturedSteps:
    """Runs the steps of bursts, from graphs once they have been captured."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[Memories, int], torch.cuda.CUDAGraph] = {}
        self._runs: Counter[tuple[Memories, int]] = Counter()
        self._refused: set[Memories] = set()
        self._pool: Any = None

    def run(self, step: BurstStep, hidden: Tensor, memories: Memories) -> None:
        """Does what `BurstStep.choose_and_advance` does.

        Args:
            step: the step.
            hidden: what the forward left, at an address that stays.
            memories: of the live sessions.
        """
        key = (memories, len(step.rows.tokens))
        if key not in self._runs and len(self._runs) >= _MOST_COUNTED:
            self._forget_all_but(memories)
        self._runs[key] += 1
        if self._runs[key] > _RUNS_BEFORE and key not in self._graphs and memories not in self._refused:
            self._capture(step, hidden, key)
        if key in self._graphs:
            self._graphs[key].replay()
        else:
            step.choose_and_advance(hidden)

    def _capture(self, step: BurstStep, hidden: Tensor, key: tuple[Memories, int]) -> None:
        """Captures a step, or notes that those of its sessions cannot be captured."""
        self._forget_all_but(key[0])
        if not self._graphs:
            self._pool = memory_pool()
        try:
            self._graphs[key] = captured(lambda: step.choose_and_advance(hidden), self._pool)
        except Exception as error:
            self._refused = {key[0]}
            log.warning(
                "the steps of this strategy run in bursts, but not from CUDA graphs (%s: %s)",
                type(error).__name__,
                str(error).strip().splitlines()[0],
            )

    def _forget_all_but(self, memories: Memories) -> None:
        """Drops the graphs of other sessions, whose memory may be gone."""
        for key in [key for key in self._runs if key[0] != memories]:
            del self._runs[key]
            self._graphs.pop(key, None)
