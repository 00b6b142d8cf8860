"""The mixing state of a worker, which the adapters of both model runners share: the live sessions and the buffers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from ngrpo.exploration.runtime.strategy_errors import from_strategy, traceback_text
from ngrpo.rollout.records.buffers import MixingBuffers
from ngrpo.rollout.records.session import CollectedRecords, Session, SessionSpec
from ngrpo.rollout.records.stepper import choose, fill_buffers, is_own
from ngrpo.rollout.vllm.device import device_view
from ngrpo.rollout.vllm.embedding import input_embedding, install
from ngrpo.rollout.vllm.settings import MixingSettings, admission_of

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
        self.sessions: dict[int, Session] = {}
        self.failures: dict[int, str] = {}
        self._spare: Session | None = None
        self._computed = 0
        self._used = torch.zeros((), dtype=torch.int64, device=device)

    def memories(self) -> tuple[int, ...]:
        """Says in which memory the live sessions lie."""
        return tuple(session.memory for session in self.sessions.values())

    def begin(self, number: int, spec: SessionSpec) -> None:
        """Starts a session beside those that are live.

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
        spare, self._spare = self._spare, None
        if spare is None or not spare.renew(spec, table, number):
            spare = Session(spec, table, self.device, device_view(self.device), number)
        self.sessions[number] = spare

    def assign(self, sampling_params: Any) -> int:
        """Gives a request the slot that it was sent with; returns its address, -1 for a request of no live session."""
        found = admission_of(sampling_params)
        if found is None or found[0] not in self.sessions:
            return -1
        number, admission = found
        return self.sessions[number].assign(admission)

    def write_assigned(self) -> None:
        """Sends what `assign` noted to the device; must come before the requests' first forward."""
        for session in self.sessions.values():
            session.write_assigned()

    def collect(self, number: int, slots: Sequence[int], lengths: Sequence[int]) -> CollectedRecords:
        """Returns the records of a session's finished requests (see `Session.collect`)."""
        collected = self.sessions[number].collect(slots, lengths)
        return collected._replace(failure=self.failures.get(number), wasted=self._take_wasted())

    def count(self, used: Tensor, computed: int) -> None:
        """Counts the tokens of a burst: those of rows that had not ended, [R] numbers, and all."""
        self._used += used.sum()
        self._computed += computed

    def _take_wasted(self) -> int:
        wasted = self._computed - int(self._used)
        self._computed = 0
        self._used.zero_()
        return wasted

    def end(self, number: int) -> None:
        """Ends a session, finished or not; does nothing for one that is not live."""
        session = self.sessions.pop(number, None)
        # Steps that were captured after a failure choose no tokens, and must never run for another session.
        failed = self.failures.pop(number, None) is not None
        if session is not None and session.vectors is not None and self.device.type != "cpu":
            torch.cuda.synchronize(self.device)  # a step in flight may still write to its host memory
        if session is not None and session.vectors is None and not failed:
            self._spare = session
        if not self.sessions:
            self.buffers.clear()

    def before_forward(self, addresses: Tensor, positions: Tensor) -> None:
        """Fills the buffers for the scheduled tokens; int64 [T] each."""
        filled = False
        for number, session in self.sessions.items():
            if session.spec.strategy.mixes:
                fill = partial(fill_buffers, session, self.buffers, addresses, positions, beside=filled)
                self._guarded(number, fill)
                filled |= number not in self.failures
        if filled:
            self.buffers.in_use = True
        else:
            self.buffers.clear()

    def choose(
        self, logits: Tensor, addresses: Tensor, positions: Tensor, recorded: Tensor, hidden: Tensor | None
    ) -> Tensor:
        """Chooses the next tokens (see `ngrpo.rollout.records.stepper.choose`), each session those of its rows.

        After an exception of a strategy all responses of its session end, and `collect` returns its traceback: raised
        here, it would end vLLM's process, be reported as the engine's fault, and end other sessions.
        """
        tokens: Tensor | None = None
        for number, session in self.sessions.items():
            chosen = self._guarded(number, partial(choose, session, logits, addresses, positions, recorded, hidden))
            if chosen is None:
                stop = session.spec.stop_ids[0] if session.spec.stop_ids else 0
                chosen = torch.full_like(positions, stop, dtype=torch.int64)
            tokens = chosen if tokens is None else torch.where(is_own(session.inputs, addresses), chosen, tokens)
        assert tokens is not None
        return tokens

    def ends(self, tokens: Tensor, addresses: Tensor) -> Tensor:
        """Says which of the chosen tokens end their rows, as each row's session says; bool [R]."""
        ended = torch.zeros_like(addresses, dtype=torch.bool)
        for session in self.sessions.values():
            ended |= is_own(session.inputs, addresses) & (tokens[:, None] == session.stop_ids).any(-1)
        return ended

    def _guarded(self, number: int, run: Callable[[], Result]) -> Result | None:
        """Runs what calls a session's strategy, until that has failed once."""
        if number not in self.failures:
            try:
                return run()
            except Exception as error:
                # What cannot be captured is run without a graph, and may be sound there.
                if _capturing(self.device) or not from_strategy(error, self.sessions[number].spec.strategy):
                    raise
                self.failures[number] = traceback_text(error)
        return None


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
