"""The folder of an engine's sockets, of which a killed process leaves its own behind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_VARIABLE = "VLLM_RPC_BASE_PATH"


class SocketFolder:
    """A folder that goes when this object does, and at the latest when this process ends in order."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="ngrpo-")

    @contextmanager
    def used(self) -> Iterator[None]:
        """Has engines that start meanwhile put their sockets there."""
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = self._folder.name
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before

    def clear(self) -> None:
        """Removes what is left there; the folder stays, since vLLM may remember it for the next start."""
        for left in Path(self._folder.name).iterdir():
            left.unlink(missing_ok=True)
