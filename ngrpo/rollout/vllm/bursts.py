"""Bursts: the steps after a batch's first are made here, without vLLM's scheduler and runner in between."""

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


class Bursts:
    """Makes the further steps of bursts.

    Args:
        state: the model state, which maps rows to addresses.
        steps: most of a burst.
    """

    def __init__(self, state: "MixingModelState", steps: int) -> None:
        self._state = state
        self._rows = BurstRows.empty(state.max_num_reqs, steps, state.device)
        self._wanted = 1
        self._runner: DecodeRunner | None = None
        self._captured = CapturedSteps()
        self.ended = torch.zeros(state.max_num_reqs, dtype=torch.bool, device=state.device)

    def expect(self, steps: int, model_runner: Any) -> None:
        """Notes how many steps the scheduler wants with the next batch."""
        self._wanted = steps
        if self._runner is None:
            self._runner = DecodeRunner(model_runner)

    def take(self) -> int:
        """Returns how many steps are wanted with the batch that is sampled now."""
        steps, self._wanted = self._wanted, 1
        return steps

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
        graph = self._runner.full_graph(batch) if attention.mode == CUDAGraphMode.FULL else None
        captured = graph is not None and self._captured.possible(attention)
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
        return rows.chosen[:count, :steps].clone(), rows.made[:count].clone()
