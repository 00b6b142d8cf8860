"""Bursts: the steps after a batch's first are made here, without vLLM's scheduler and runner in between."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.input_batch import InputBatch

from ngrpo.rollout.vllm.burst_rows import BurstRows
from ngrpo.rollout.vllm.burst_step import Attention, BurstStep
from ngrpo.rollout.vllm.captured_steps import CapturedSteps
from ngrpo.rollout.vllm.private import DecodeRunner

if TYPE_CHECKING:
    from ngrpo.rollout.vllm.runner_v2 import MixingModelState

log = logging.getLogger(__name__)


class Bursts:
    """Makes the further steps of bursts.

    Args:
        state: the model state, which maps rows to addresses.
        steps: most of a burst.
    """

    def __init__(self, state: "MixingModelState", steps: int) -> None:
        self._state, self._most = state, steps
        self._rows = BurstRows.empty(state.max_num_reqs, steps, state.device)
        self._wanted = 1
        self._runner: DecodeRunner | None = None
        self._captured = CapturedSteps()
        self._told = False
        self.ended = torch.zeros(state.max_num_reqs, dtype=torch.bool, device=state.device)

    def expect(self, steps: int, worker: Any) -> None:
        """Notes how many steps the scheduler wants with the next batch."""
        self._wanted = steps
        if self._runner is None:
            self._runner = DecodeRunner(worker)

    def take(self) -> int:
        """Returns how many steps are wanted with the batch that is sampled now."""
        steps, self._wanted = self._wanted, 1
        return steps

    def note_step(self, tokens: Tensor, batch: InputBatch, lengths: Tensor, decided: Tensor) -> None:
        """Notes the rows that a single step ends: the burst after it is scheduled before vLLM knows of them.

        Args:
            tokens: what it chose; int64 [R].
            batch: its rows.
            lengths: tokens of each row without the chosen one; int64 [R].
            decided: the row was not being prefilled; bool [R].
        """
        if self._most > 1:
            states = batch.idx_mapping
            ends = self._state.mixing.ends(tokens, self._state.addresses[states])
            self.ended[states] |= decided & (ends | (lengths + 1 >= self._state.limits[states]))

    def _graph(self, batch: InputBatch, attention: Attention) -> Callable[[], Tensor] | None:
        """Returns the replay of the batch's graph, None where there is none that can be fed; tells once.

        A graph reads the attention's metadata, which would stay those of the first step.
        """
        assert self._runner is not None
        if attention.mode != CUDAGraphMode.FULL:
            return None
        if not attention.updatable():
            if not self._told:
                log.warning("vLLM's attention needs the host at each step here: bursts do not run from CUDA graphs")
                self._told = True
            return None
        return self._runner.full_graph(batch)

    def go_on(self, tokens: Tensor, batch: InputBatch, attention: Attention, steps: int) -> tuple[Tensor, Tensor]:
        """Makes the steps after the first.

        Args:
            tokens: what the first chose; int64 [R].
            batch: the first step's.
            attention: the same.
            steps: of the burst, N.

        Returns:
            The tokens, int64 [R, N], and how many of them are each row's; int32 [R].
        """
        assert self._runner is not None
        states, count = batch.idx_mapping, batch.num_reqs
        graph = self._graph(batch, attention)
        # Several GPUs talk to each other between two forwards, for which vLLM has a way of capturing of its own.
        captured = graph is not None and self._state.vllm_config.parallel_config.tensor_parallel_size == 1
        rows = self._rows.first(batch.num_reqs_after_padding if captured else count)
        rows.fill(states, self._state.addresses[states], self._state.limits[states], ~self.ended[states])
        step = BurstStep(self._state, self._runner, rows, batch, attention)
        step.begin(tokens)
        for number in range(1, steps):
            hidden = graph() if graph is not None else step.forward(number)
            if captured:
                self._captured.run(step, hidden, self._state.mixing.memories())
            else:
                step.choose_and_advance(hidden)
        self.ended[states] = ~rows.live[:count]
        made = rows.made[:count].clone()
        self._state.mixing.count(made, steps * count)
        return rows.chosen[:count, :steps].clone(), made
