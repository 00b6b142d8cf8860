"""A watch over vLLM's engine processes, whose death its synchronous client would not notice.

A process that is killed (by the kernel for its memory, say) sends no message first: vLLM 0.32 then marks its client as
dead, which stops the next call, but not the one that is waiting for an answer.
"""

from multiprocessing.connection import wait
from threading import Event, Thread
from typing import Any

from ngrpo.rollout.vllm.private import engine_processes, fail_waiting_calls

_PAUSE_S = 0.2


class ProcessWatch:
    """Makes calls that wait for dead engine processes raise.

    Args:
        llm: an engine in processes of its own.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._sentinels = [process.sentinel for process in engine_processes(llm)]
        self._closed = Event()
        self._thread = Thread(target=self._watch, name="ngrpo-process-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops watching; to be called before the processes are ended in order."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.is_set():
            if wait(self._sentinels, timeout=_PAUSE_S):
                fail_waiting_calls(self._llm, RuntimeError("an engine process of vLLM has died"))
                self._closed.wait(_PAUSE_S)  # and again: another call may have started meanwhile
