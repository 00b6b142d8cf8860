"""Exceptions of another process, and the place in the code that an exception comes from."""

import traceback
from pathlib import Path


class RemoteError(Exception):
    """An exception that was raised in another process.

    Args:
        description: its ``repr`` there.
        place: where it came from there, see `origin`.
    """

    def __init__(self, description: str, place: str) -> None:
        super().__init__(f"{description}{place}")
        self.description = description
        self.place = place

    def __repr__(self) -> str:
        return self.description


def origin(error: BaseException) -> str:
    """Returns where in the code an error comes from, as a clause: `` in my_reward.py:42``."""
    if isinstance(error, RemoteError):
        return error.place
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
