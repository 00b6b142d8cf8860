"""Standard output and error that survive a closed terminal, a lost reader or a full disk."""

import io
import logging
import os
import sys
from typing import Any, TextIO, cast

log = logging.getLogger(__name__)


def open_closed_streams() -> None:
    """Opens standard input, output and error on the null device where they are closed.

    The next files that are opened would get their numbers, and what is printed would go into a checkpoint.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def survive_closed_streams() -> None:
    """Lets this process go on when nobody can be told any more: what it prints is dropped then, and its log says so."""
    open_closed_streams()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, UnfailingStream):
            setattr(sys, name, cast(TextIO, UnfailingStream(stream, name)))


class UnfailingStream:
    """A text stream whose writes never fail: after the first that does, its descriptor leads to the null device.

    Args:
        stream: what is written to.
        name: for the log.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no terminal's encoding is worth a run, either

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes what can be written."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
        except RuntimeError:  # a signal's handler prints in the middle of another write
            pass
        return len(text)

    def flush(self) -> None:
        """Flushes what can be flushed."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)
        except RuntimeError:
            pass

    def _lose(self, error: OSError) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())  # what the stream still holds, and what other libraries print, goes there
        os.close(null)
        reason = os.strerror(error.errno) if error.errno else str(error)
        log_to_files(logging.WARNING, f"{self._name} is gone ({reason}): the run continues, and writes to its log only")


def log_to_files(level: int, message: str) -> None:
    """Writes to the log files alone: not to the terminal, which has been told or is gone."""
    record = log.makeRecord(log.name, level, __file__, 0, message, (), None)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
