"""Exceptions of another process, and the place in the code that an exception comes from."""

import logging
import traceback
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])
_HYDRA = str(Path(_spec.origin).parent) if (_spec := find_spec("hydra")) and _spec.origin else "no Hydra"
"""Hydra wraps the functions that it makes: a call with wrong arguments ends in its own code."""


class RemoteError(Exception):
    """An exception that was raised in another process.

    Args:
        description: its ``repr`` there.
        place: where it came from there, see `origin`.
        traceback: what led to it there, see `own_traceback`.
    """

    def __init__(self, description: str, place: str, traceback: str = "") -> None:
        super().__init__(f"{description}{place}")
        self.description = description
        self.place = place
        self.traceback = traceback

    def __repr__(self) -> str:
        return self.description


def origin(error: BaseException) -> str:
    """Returns where in the code an error comes from, as a clause: `` in my_reward.py:42``.

    Empty of an error without frames, and of a call that failed before a line of the function ran.
    """
    if isinstance(error, RemoteError):
        return error.place
    frames = list(traceback.extract_tb(error.__traceback__))
    if frames and _is_below(frames[-1].filename, _HYDRA):
        frames = [frame for frame in frames if not _is_internal(frame.filename)]
    return f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def own_traceback(error: BaseException) -> str:
    """Returns the traceback of an error in code that a user has written, without frames of this package and Hydra.

    Empty if there is nothing but those.
    """
    if isinstance(error, RemoteError):
        return error.traceback
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_internal(frame.filename)]
    if not frames:
        return ""
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return "Traceback (most recent call last):\n" + "".join(lines).rstrip()


def log_traceback(log: logging.Logger, error: BaseException) -> None:
    """Logs the traceback of an error in code that a user has written."""
    if shown := own_traceback(error):
        log.error("%s", shown)


def _is_internal(filename: str) -> bool:
    """Whether a frame is of this package, of Hydra, or of what awaits an async function."""
    if _is_below(filename, _PACKAGE) or _is_below(filename, _HYDRA):
        return True
    return filename.startswith("<frozen") or Path(filename).parent.name == "asyncio"


def _is_below(filename: str, folder: str) -> bool:
    return filename.startswith(folder + "/")
