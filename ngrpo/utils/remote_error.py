"""Exceptions of another process, and the place in the code that an exception comes from."""

import logging
import traceback
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


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
    """Returns where in the code an error comes from, as a clause: `` in my_reward.py:42``."""
    if isinstance(error, RemoteError):
        return error.place
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def own_traceback(error: BaseException) -> str:
    """Returns the traceback of an error in code that a user has written, without this package's own frames.

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
    """Whether a frame is of this package, or of what awaits an async function."""
    return filename.startswith((_PACKAGE + "/", "<frozen")) or Path(filename).parent.name == "asyncio"
