"""CUDA graphs of what lies between two forwards of a burst: choosing, recording, and preparing the next step."""

import logging
from collections import Counter

import torch
from torch import Tensor

from ngrpo.rollout.vllm.burst_step import Attention, BurstStep

log = logging.getLogger(__name__)

_RUNS_BEFORE = 2
"""Runs of a step before it is captured: the first compile, and a batch that comes once is not worth a graph."""

Key = tuple[tuple[int, ...], int]


class CapturedSteps:
    """Runs the steps of bursts, from graphs where they can be captured."""

    def __init__(self) -> None:
        self._graphs: dict[Key, torch.cuda.CUDAGraph] = {}
        self._runs: Counter[Key] = Counter()
        self._pool: tuple[int, int] | None = None
        self._stream: torch.cuda.Stream | None = None
        self._told = False

    def possible(self, attention: Attention) -> bool:
        """Says whether steps with this attention can be captured; tells once where they cannot."""
        if attention.updatable():
            return True
        if not self._told:
            log.warning("vLLM's attention here needs the host at each step: bursts of decode steps are not captured")
            self._told = True
        return False

    def run(self, step: BurstStep, hidden: Tensor, memories: tuple[int, ...]) -> None:
        """Does what `BurstStep.choose_and_advance` does.

        Args:
            step: the step.
            hidden: what the forward left, at an address that stays.
            memories: where the live sessions lie (see `MixingState.memories`).
        """
        key = (memories, len(step.rows.tokens))
        if self._runs[key] >= _RUNS_BEFORE and key not in self._graphs:
            self._forget_all_but(memories)
            self._graphs[key] = self._capture(step, hidden)
        self._runs[key] += 1
        graph = self._graphs.get(key)
        if graph is None:
            step.choose_and_advance(hidden)
        else:
            graph.replay()

    def _forget_all_but(self, memories: tuple[int, ...]) -> None:
        """Drops the graphs of other sessions, whose memory may be gone."""
        for key in [key for key in self._runs if key[0] != memories]:
            del self._runs[key]
            self._graphs.pop(key, None)

    def _capture(self, step: BurstStep, hidden: Tensor) -> torch.cuda.CUDAGraph:
        """Captures a step, on a stream of its own and without `torch.cuda.graph`'s wait for the device."""
        if self._stream is None:
            self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                step.choose_and_advance(hidden)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph
