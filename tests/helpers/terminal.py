"""Programs run in a terminal of a given size, and what they wrote there."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from contextlib import suppress
from threading import Thread

import rich

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def resize(descriptor: int, columns: int, lines: int = 30) -> None:
    """Gives the terminal behind a descriptor a size."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


class Terminal:
    """A terminal that takes down all that is written to it.

    Attributes:
        name: path of the device.
    """

    def __init__(self, columns: int) -> None:
        self._ours, self._theirs = pty.openpty()
        resize(self._theirs, columns)
        self.name = os.ttyname(self._theirs)
        self._written = b""
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # how Linux tells the end
            while chunk := os.read(self._ours, 65536):
                self._written += chunk

    def closed(self) -> bytes:
        """Closes the terminal, and returns what was written."""
        os.close(self._theirs)
        self._reader.join()
        os.close(self._ours)
        return self._written


def become(name: str, encoding: str) -> None:
    """Lets this process write to a terminal, and rich know of it."""
    for number in (0, 1, 2):
        os.dup2(os.open(name, os.O_RDWR | os.O_NOCTTY), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, encoding=encoding, closefd=False) for n in (1, 2))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    rich.reconfigure()


def lines_of(written: bytes, encoding: str = "utf-8") -> list[str]:
    """Returns what was drawn, line by line and drawing by drawing, without what steers a terminal."""
    return [line.rstrip() for line in re.split(r"[\r\n]+", _ESCAPES.sub("", written.decode(encoding))) if line.strip()]
