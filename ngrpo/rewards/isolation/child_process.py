"""Child processes that answer requests: how they are started, asked, timed, killed and replaced, and their own side.

Both sides exchange bytes, so that each user chooses what a message is: the answer checker reads text that a model
wrote, and nothing that comes from it may be unpickled.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import ngrpo
from ngrpo.distributed.parent_watch import leave_signals_to_parent
from ngrpo.errors import SettingError, first_line
from ngrpo.rewards.isolation.channel import Channel
from ngrpo.utils.remote_error import RemoteError, origin, own_traceback

_LIMIT = struct.Struct("!d")  # stands before each request: the seconds that it may take
_RESULT, _RAISED = b"\0", b"\1"  # stand before each reply


class ProcessDied(Exception):
    """The child ended before it replied."""


class UnsavableState(Exception):
    """The state of an object in the child cannot be sent; the message says why, as a clause."""


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    channel: Channel


class ChildProcess:
    """A process that answers one request after the other; killed when it takes too long.

    It ends with this process: at the interpreter's end, when this object is forgotten, and by its closed channel if
    this process is killed. Should it hang then, the kernel's alarm ends it after twice the limit of its request.
    Used by one thread at a time.

    Args:
        module: what the child runs as ``python -m``; its main function calls `serve`.
        environment: variables that are set in the child beside those of this process.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._environment = dict(environment or {})
        self._running: list[_Running] = []  # one or none
        weakref.finalize(self, _kill, self._running)

    @property
    def pid(self) -> int | None:
        """The child's process id; None if there is none now."""
        return self._running[0].process.pid if self._running else None

    def start(self, settings: bytes, limit_s: float) -> bytes:
        """Starts the child, in place of an earlier one.

        Args:
            settings: what `Service.start` gets there.
            limit_s: seconds that this may take.

        Returns:
            What `Service.start` returned.

        Raises:
            ProcessDied, RemoteError, TimeoutError: as for `call`; there is no child then.
        """
        self.begin(settings, limit_s)
        return self.started(limit_s)

    def begin(self, settings: bytes, limit_s: float) -> None:
        """Starts the child and does not wait for it; `started` does, before the first `call`.

        Args:
            settings: what `Service.start` gets there.
            limit_s: seconds that its start may take.

        Raises:
            ProcessDied, TimeoutError: it took no settings; there is no child then.
        """
        self.kill()
        ours, theirs = socket.socketpair()
        with theirs:
            # -P: the child must not import from the current directory, whatever lies there.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # what is sent to the trainer's group is for the trainer
                env={**os.environ, "PYTHONPATH": _python_path(), **self._environment},
            )
        self._running.append(_Running(process, Channel(ours)))
        self._send(settings, limit_s)

    def started(self, limit_s: float) -> bytes:
        """Returns what `Service.start` returned in a child that `begin` has started.

        Args:
            limit_s: seconds from now that this may take; a child that is ready already takes none.

        Raises:
            ProcessDied, RemoteError, TimeoutError: as for `call`; there is no child then.
        """
        try:
            return self._received(limit_s)
        except RemoteError:
            self.kill()
            raise

    def call(self, request: bytes, limit_s: float) -> bytes:
        """Returns the child's reply.

        Args:
            request: what `Service.answer` gets there.
            limit_s: seconds that this may take.

        Raises:
            ProcessDied: the child is gone.
            RemoteError: the child raised; it is ready for the next request.
            TimeoutError: the child has been killed, having taken too long.
        """
        deadline = time.monotonic() + limit_s
        self._send(request, limit_s)
        return self._received(deadline - time.monotonic())

    def _send(self, request: bytes, limit_s: float) -> None:
        with self._killed_on_failure() as channel:
            channel.send(_LIMIT.pack(limit_s) + request, time.monotonic() + limit_s)

    def _received(self, limit_s: float) -> bytes:
        with self._killed_on_failure() as channel:
            reply = channel.receive(time.monotonic() + limit_s)
        if reply.startswith(_RAISED):
            raise RemoteError(*json.loads(reply[len(_RAISED) :]))
        return reply[len(_RESULT) :]

    @contextmanager
    def _killed_on_failure(self) -> Iterator[Channel]:
        if not self._running:
            raise ProcessDied
        try:
            yield self._running[0].channel
        except EOFError as error:
            self.kill()
            raise ProcessDied from error
        # Also an interruption, after which a late reply would be taken for that to another request.
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends the child, if there is one, and waits until it is gone."""
        _kill(self._running)


class Service(Protocol):
    """What a child does with the messages that it gets; what it raises is raised in the parent, as a RemoteError."""

    def start(self, settings: bytes) -> bytes:
        """Prepares; called once."""

    def answer(self, request: bytes) -> bytes:
        """Answers a request; may take arbitrarily long."""


def serve(service: Service) -> None:
    """Answers what the parent sends, in the child, until the parent closes its end or is gone."""
    leave_signals_to_parent()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    reply_to: Callable[[bytes], bytes] = service.start
    try:
        while True:
            request = channel.receive()
            (limit_s,) = _LIMIT.unpack_from(request)
            # The parent's limit is shorter; if the parent is gone, nobody else ends a request that hangs.
            signal.setitimer(signal.ITIMER_REAL, 2 * limit_s)
            reply = _reply(reply_to, request[_LIMIT.size :])
            signal.setitimer(signal.ITIMER_REAL, 0)
            channel.send(reply)
            reply_to = service.answer
    except EOFError:
        return


def _reply(reply_to: Callable[[bytes], bytes], request: bytes) -> bytes:
    try:
        return _RESULT + reply_to(request)
    except Exception as error:
        # A refusal is a sentence already; of other errors type and place tell more.
        told = (first_line(error), "") if isinstance(error, SettingError) else (repr(error), origin(error))
        return _RAISED + json.dumps([*told, own_traceback(error)]).encode()


def _python_path() -> str:
    """Returns PYTHONPATH for a child that must find this package wherever this process has found it."""
    return os.pathsep.join([str(Path(ngrpo.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])


def _kill(running: list[_Running]) -> None:
    while running:
        process, channel = running.pop()
        process.kill()
        process.wait()
        channel.close()
