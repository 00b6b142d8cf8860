"""A watch over vLLM's engine processes, whose death its synchronous client would not notice.

A process that is killed (by the kernel for its memory, say) sends no message first: vLLM 0.32 then marks its client as
dead, which stops the next call, but not the one that is waiting for an answer.
"""

from multiprocessing.connection import wait
from threading import Event, Thread
from typing import Any

_PAUSE_S = 0.2


class ProcessWatch:
    """Makes calls that wait for dead engine processes raise.

    Args:
        client: vLLM's client of engine processes.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._sentinels = [process.sentinel for process in client.resources.engine_manager.processes]
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
                self._release()
                self._closed.wait(_PAUSE_S)  # and again: another call may have started meanwhile

    def _release(self) -> None:
        death = RuntimeError("an engine process of vLLM has died")
        for future in list(self._client.utility_results.values()):
            if not future.done():
                future.set_exception(death)
        if self._client.outputs_queue.empty():
            self._client.outputs_queue.put_nowait(death)


def watch_processes(llm: Any) -> ProcessWatch | None:
    """Returns the watch over an engine's processes, None where it has none."""
    client = llm.llm_engine.engine_core
    manager = getattr(getattr(client, "resources", None), "engine_manager", None)
    return None if manager is None else ProcessWatch(client)
