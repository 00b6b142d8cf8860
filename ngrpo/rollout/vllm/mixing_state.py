"""The mixing state of a worker, which the adapters of both model runners share: the current session and its buffers."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ngrpo.exploration.runtime.strategy_errors import from_strategy, traceback_text
from ngrpo.rollout.records.buffers import MixingBuffers
from ngrpo.rollout.records.session import CollectedRecords, Session, SessionSpec
from ngrpo.rollout.records.stepper import choose, fill_buffers
from ngrpo.rollout.vllm.device import device_view
from ngrpo.rollout.vllm.embedding import input_embedding, install
from ngrpo.rollout.vllm.settings import MixingSettings

Result = TypeVar("Result")


class MixingState:
    """One worker's mixing state.

    Args:
        model: the loaded vLLM model; its input embedding is replaced.
        settings: the engine's.
        max_tokens: most tokens in a forward, graph padding included.
        device: the worker's device.
    """

    def __init__(self, model: Any, settings: MixingSettings, max_tokens: int, device: torch.device) -> None:
        self.device = device
        self.width, vectors = settings.width, settings.vectors
        like = input_embedding(model).weight.data if vectors else None
        self.buffers = MixingBuffers(max_tokens, 1 if vectors else max(self.width, 1), device, like)
        self.embedding = install(model, self.buffers)
        self.session: Session | None = None
        self.failure: str | None = None

    def begin(self, spec: SessionSpec) -> None:
        """Starts a session in place of the one before it.

        Raises:
            ValueError: the strategy mixes more ids, or in another way, than the engine was started for.
        """
        strategy, vectors = spec.strategy, self.buffers.tensors.vectors is not None
        if not vectors and strategy.width > self.width:
            raise ValueError(f"the engine was started for mixtures of {self.width} ids, not {strategy.width}")
        if not vectors and not strategy.sums_rows:
            raise ValueError(f"the engine was started for sums of embedding rows, which {strategy} does not feed")
        needed = strategy.reads_embedding or (vectors and strategy.mixes)
        table = self.embedding.table() if needed else self.embedding.weight.data[:0]
        self.session = Session(spec, table, self.device, device_view(self.device))
        self.failure = None

    def collect(self) -> CollectedRecords:
        """Ends the session and returns its records."""
        assert self.session is not None
        collected = self.session.collect()._replace(failure=self.failure)
        self.session = None
        self.buffers.clear()
        return collected

    def before_forward(self, slots: Tensor, positions: Tensor) -> None:
        """Fills the buffers for the scheduled tokens; int64 [T] each."""
        session = self.session
        if session is None or not session.spec.strategy.mixes:
            self.buffers.clear()
            return
        self._guarded(lambda: fill_buffers(session, self.buffers, slots, positions))
        self.buffers.in_use = True

    def choose(self, logits: Tensor, slots: Tensor, positions: Tensor, recorded: Tensor) -> Tensor:
        """Chooses the next tokens (see `ngrpo.rollout.records.stepper.choose`).

        After an exception of the strategy all responses end, and `collect` returns its traceback: raised here, it would
        end vLLM's process and be reported as the engine's fault.
        """
        session = self.session
        assert session is not None
        tokens = self._guarded(lambda: choose(session, logits, slots, positions, recorded))
        stop = session.spec.stop_ids[0] if session.spec.stop_ids else 0
        return torch.full_like(positions, stop, dtype=torch.int64) if tokens is None else tokens

    def _guarded(self, run: Callable[[], Result]) -> Result | None:
        """Runs what calls the strategy, until that has failed once."""
        assert self.session is not None
        if self.failure is None:
            try:
                return run()
            except Exception as error:
                if not from_strategy(error, self.session.spec.strategy):
                    raise
                self.failure = traceback_text(error)
        return None
