"""Messages between a process and its child, over a pair of connected sockets."""

import math
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LENGTH = struct.Struct("!Q")
_CHUNK = 2**16


class Channel:
    """One end of a line on which one side asks and the other answers, so that one message at most is under way.

    A message is its length, in eight bytes, and its content. Time limits hold for a whole message: neither a peer that
    stops reading nor one that stops in the middle of a message is waited for any longer.

    Args:
        end: a connected stream socket; closed with the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: bytes, deadline: float = math.inf) -> None:
        """Sends a message.

        Args:
            message: any bytes.
            deadline: on the clock `time.monotonic`.

        Raises:
            TimeoutError: the peer had not taken it by then.
            EOFError: the peer is gone.
        """
        with self._gone_is_end():
            self._wait_until(deadline)
            self._end.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self, deadline: float = math.inf) -> bytes:
        """Returns the next message.

        Args:
            deadline: on the clock `time.monotonic`.

        Raises:
            TimeoutError: no whole message had come by then.
            EOFError: the peer is gone.
        """
        received = bytearray()
        with self._gone_is_end():
            while (missing := _missing(received)) > 0:
                self._wait_until(deadline)
                if not (chunk := self._end.recv(max(missing, _CHUNK))):
                    raise EOFError
                received += chunk
        return bytes(received[_LENGTH.size :])

    def close(self) -> None:
        """Closes this end; the peer sees it at its next message."""
        self._end.close()

    def _wait_until(self, deadline: float) -> None:
        """Sets the limit of the next operation; `socket.sendall` takes it for the whole of what it sends."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._end.settimeout(None if left == math.inf else left)

    @contextmanager
    def _gone_is_end(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError from error


def _missing(received: bytearray) -> int:
    """Returns how many bytes a message that has come in part lacks, as far as is known."""
    if len(received) < _LENGTH.size:
        return _LENGTH.size - len(received)
    length: int = _LENGTH.unpack_from(received)[0]
    return _LENGTH.size + length - len(received)
