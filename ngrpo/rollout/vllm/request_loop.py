"""The loop that runs the requests of any number of callers on one vLLM engine, in the callers' own threads.

No thread of its own: the first caller that waits for outputs *leads*, which is to step vLLM and to hand every output to
the call that its request belongs to; the others sleep until there is something for them, and one of them leads next.
Everything else that is asked of vLLM takes a *turn* between two steps.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Any

from ngrpo.utils.interrupts import delayed_interrupt

log = logging.getLogger(__name__)

_STOP_S = 10.0
"""Seconds that a running step may take when the engine is closed: one that hangs must not prevent it."""

Submission = tuple[str, Any, Any]
"""Id, prompt and parameters of a request, as ``LLMEngine.add_request`` takes them."""


class Call:
    """The requests of one caller that vLLM is running.

    Attributes:
        number: another one for each call of the engine.
        running: their ids.
        watched: ids of requests whose tokens are handed out as they come.
        outputs: of finished and watched requests, which the caller has not taken yet.
        interrupted: the caller is to look up from its waiting.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.running: set[str] = set()
        self.watched: set[str] = set()
        self.outputs: list[Any] = []
        self.interrupted = False


class RequestLoop:
    """Runs requests for several threads at once.

    After an exception in a step nothing is known of vLLM's state: the exception reaches every caller that has requests,
    and the loop serves nobody any more.

    Args:
        engine: a ``vllm.LLMEngine``, which is told nothing but by this loop.
        thread_state: prepares a thread for vLLM's kernels: the current device and stream are a thread's own.
        pausing: stop vLLM while the first requests of a call arrive, for an engine that runs beside this process: it
            would start with those that have arrived, and the last bits of a row depend on the rows it is computed with.
            Requests that are added later meet whatever step vLLM is at.
    """

    def __init__(self, engine: Any, thread_state: Callable[[], AbstractContextManager[Any]], pausing: bool) -> None:
        self._engine = engine
        self._thread_state = thread_state
        self._pausing = pausing
        self._state = threading.Condition()
        self._user: object | None = None
        self._turns: deque[object] = deque()
        self._owners: dict[str, Call] = {}
        self._live = 0
        self._alone = False
        self._want_alone = 0
        self._numbers = count()
        self._failure: BaseException | None = None

    @contextmanager
    def call(self, begin: str, end: str, *arguments: Any) -> Iterator[Call]:
        """Opens a call; requests that are left at its end are aborted. Waits while `alone` is used, or waited for.

        Args:
            begin: method of the workers that is called first, with the call's number.
            end: method that is called last, with the number.
            *arguments: further ones of ``begin``.
        """
        with self._state:
            self._state.wait_for(lambda: not (self._alone or self._want_alone))
            self._check()
            self._live += 1
        try:
            call = Call(next(self._numbers))
            try:
                self.rpc(begin, call.number, *arguments)
                yield call
            finally:
                self._close(call, end)
        finally:
            with self._state:
                self._live -= 1
                self._state.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until no call is live, and makes new ones wait: weights change, or memory goes."""
        with self._state:
            self._want_alone += 1
            try:
                self._state.wait_for(lambda: not self._alone and self._live == 0)
                self._alone = True
            finally:
                self._want_alone -= 1
                self._state.notify_all()
        try:
            yield
        finally:
            with self._state:
                self._alone = False
                self._state.notify_all()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Has vLLM to itself; turns are taken in the order in which they were asked for."""
        own = object()
        try:
            with self._state:
                self._turns.append(own)
                self._state.wait_for(lambda: self._user is None and self._turns[0] is own)
                self._turns.popleft()
                self._user = own
            self._check()
            with delayed_interrupt(), self._thread_state():
                yield
        finally:
            self._release(own)

    def rpc(self, method: str, *args: Any) -> list[Any]:
        """Calls a method of every worker."""
        with self.turn():
            made: list[Any] = self._engine.collective_rpc(method, args=args)
            return made

    def add(self, call: Call, requests: Sequence[Submission]) -> None:
        """Adds requests to a call."""
        first = not call.running
        with self.turn(), self._paused() if self._pausing and first else nullcontext():
            for request_id, prompt, parameters in requests:
                self._engine.add_request(request_id, prompt, parameters)
                call.running.add(request_id)
                self._owners[request_id] = call

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._engine.sleep(level=0, mode="keep")
        try:
            yield
        finally:
            self._engine.wake_up(tags=["scheduling"])

    def withdraw(self, call: Call, ids: Sequence[str]) -> None:
        """Takes some of a call's requests back; those that have finished may still be handed out."""
        with self.turn():
            self._engine.abort_request(list(ids))
            call.running.difference_update(ids)
            for request_id in ids:
                self._owners.pop(request_id, None)

    def interrupt(self, call: Call) -> None:
        """Ends the waiting of another thread for a call's outputs, or its next one."""
        with self._state:
            call.interrupted = True
            self._state.notify_all()

    def finished(self, call: Call) -> list[Any]:
        """Waits until some of a call's requests have finished, or watched ones have gone on; returns their outputs.

        Returns none when it is interrupted.

        Raises:
            Exception: what a step raised, here or in another thread.
        """
        while True:
            try:
                with self._state:
                    self._state.wait_for(
                        lambda: (
                            call.outputs
                            or call.interrupted
                            or self._failure is not None
                            or not (self._user or self._turns)
                        )
                    )
                    if self._failure is not None:
                        raise self._failure
                    if call.outputs or call.interrupted:
                        call.interrupted = False
                        outputs, call.outputs = call.outputs, []
                        return outputs
                    self._user = call
                self._lead(call)
            finally:
                self._release(call)

    def stop(self) -> None:
        """Ends all calls, waits a moment for the step that is running, and lets go of vLLM.

        So that its memory is free when it is built anew, nothing is kept that leads to it: also not the exception of a
        step, whose traceback does.
        """
        closed = RuntimeError("the engine was closed")
        self.fail(closed)
        with self._state:
            self._state.wait_for(lambda: self._user is None, timeout=_STOP_S)
            self._engine, self._failure = None, closed

    def fail(self, error: BaseException) -> None:
        """Ends all calls with an exception."""
        with self._state:
            self._failure = self._failure or error
            self._state.notify_all()

    def _lead(self, call: Call) -> None:
        """Steps vLLM until there are outputs for ``call``, another thread wants a turn or it, or all is over."""
        with self._thread_state():
            while not (call.outputs or call.interrupted or self._turns or self._failure):
                with delayed_interrupt():
                    try:
                        outputs = self._engine.step()
                    except BaseException as error:
                        self.fail(error)
                        raise
                    self._hand_out(outputs)

    def _hand_out(self, outputs: Sequence[Any]) -> None:
        told = False
        with self._state:
            for output in outputs:
                owner = self._owners.get(output.request_id)
                if owner is None or not (output.finished or output.request_id in owner.watched):
                    continue
                if output.finished:
                    del self._owners[output.request_id]
                    owner.running.discard(output.request_id)
                    owner.watched.discard(output.request_id)
                owner.outputs.append(output)
                told = True
            if told:
                self._state.notify_all()

    def _close(self, call: Call, end: str) -> None:
        """Takes a call's requests back and ends its session, unless vLLM is lost anyway."""
        for request_id in call.running:
            self._owners.pop(request_id, None)
        if self._failure is not None:
            return
        try:
            with self.turn():
                self._engine.abort_request(sorted(call.running))
                self._engine.collective_rpc(end, args=(call.number,))
        except Exception as error:
            log.debug("a call could not be closed: %s", error)
            self.fail(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError(
                f"vLLM failed before ({type(self._failure).__name__}: {self._failure}) and must be started again"
            ) from self._failure

    def _release(self, user: object) -> None:
        """Lets others use vLLM; also after an interrupt while this one was still waiting to."""
        with self._state:
            if user in self._turns:
                self._turns.remove(user)
            if self._user is user:
                self._user = None
            self._state.notify_all()
