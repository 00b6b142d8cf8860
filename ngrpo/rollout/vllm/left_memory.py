"""The shared memory of an engine's processes, which stays when the process that made it is killed."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

_FOLDER = "/dev/shm/"
_MADE_BY_PYTHON = "psm_"
"""What names of `SharedMemory` start with."""
_MADE_BY_WORKERS = "vllm_dist_"
"""What those start with that vLLM's workers on a CPU share; all others go with their users."""


class EngineMemory:
    """The segments that engine processes, with all that they started, have mapped.

    Args:
        processes: ids of running ones.
    """

    def __init__(self, processes: Iterable[int]) -> None:
        self._names = {name for process in _with_descendants(processes) for name in _mapped(process)}

    def remove(self) -> None:
        """Removes what is left of them; to be called when the processes have ended."""
        for name in self._names:
            if name.startswith(_MADE_BY_WORKERS):
                Path(_FOLDER + name).unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):
                segment = SharedMemory(name)
                segment.close()
                segment.unlink()  # and Python's resource tracker hears of it, which would warn at the end
        self._names.clear()


def _with_descendants(processes: Iterable[int]) -> Iterator[int]:
    for process in processes:
        yield process
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):
                yield from _with_descendants(map(int, children.read_text().split()))


def _mapped(process: int) -> set[str]:
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except OSError:  # it has just ended
        return set()
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    shared = {path.removeprefix(_FOLDER) for path in paths if path.startswith(_FOLDER)}
    return {name for name in shared if name.startswith((_MADE_BY_PYTHON, _MADE_BY_WORKERS))}
