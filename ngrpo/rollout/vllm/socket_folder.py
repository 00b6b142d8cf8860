"""The folder of an engine's sockets, of which a killed process leaves its own behind."""

from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from ngrpo.utils.environment_variable import environment_variable

_VARIABLE = "VLLM_RPC_BASE_PATH"


class SocketFolder:
    """A folder that goes when this object does, and at the latest when this process ends in order."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="ngrpo-")

    def used(self) -> AbstractContextManager[None]:
        """Has engines that start meanwhile put their sockets there."""
        return environment_variable(_VARIABLE, self._folder.name)

    def clear(self) -> None:
        """Removes what is left there; the folder stays for the next start."""
        for left in Path(self._folder.name).iterdir():
            left.unlink(missing_ok=True)
