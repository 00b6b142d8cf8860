"""Objects in a process apart, which can be ended when they hang."""

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ngrpo
from ngrpo.distributed.collectives import packed
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.terms.calls import Elsewhere
from ngrpo.types.scores import Verdict

LIMIT = "custom_reward_timeout_s"
"""The setting that says how long a call may take."""

_START_LIMIT_S = 300.0  # a reward model may have to be loaded
_PATIENCE = 3


class CallFailed(Exception):
    """A call has no result; the verdict is that on what it was to judge, the message says why, as a clause."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


class Apart:
    """An object that lives in a process of its own; the process is replaced when it hangs or dies.

    The process also ends with this one, or by the kernel's alarm when a call takes twice its limit. What the object
    changes in itself is lost with its process, except for the state of a stateful one, which is handed on.

    Args:
        setting: where the object is configured, for messages.
        node: its ``_target_`` node, of plain containers.
        limit_s: most seconds that a call may take.

    Raises:
        SettingError: the object cannot be made.
    """

    def __init__(self, setting: str, node: Mapping[str, Any], limit_s: float) -> None:
        self.setting = setting
        self.node = dict(node)
        self.limit_s = limit_s
        self.state: dict[str, Any] | None = None
        self._line: Connection | None = None
        self._failed_in_a_row = 0
        self._running: list[subprocess.Popen[bytes]] = []
        weakref.finalize(self, _end, self._running)
        self._start()

    def __call__(self, *arguments: Any, **offered: Any) -> Any:
        """Calls the object.

        Args:
            arguments: picklable; they arrive as copies.
            offered: likewise, for an object that declares parameters of these names.

        Raises:
            CallFailed: it took too long, or ended its process.
            Elsewhere: it raised.
            RunError: one of the first two kinds, for the third time in a row.
        """
        try:
            result = self._asked(arguments, offered)
        except CallFailed as failure:
            self._count(failure)
            raise
        self._failed_in_a_row = 0
        return result

    def restore(self, state: dict[str, Any] | None) -> None:
        """Gives the object a state, from the next call on."""
        self.close()
        self.state = state

    def close(self) -> None:
        """Ends the process; a later call starts another."""
        _end(self._running)
        if self._line is not None:
            self._line.close()
        self._line = None

    def _count(self, failure: CallFailed) -> None:
        self.close()
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _PATIENCE:
            raise RunError(
                f"{self.setting} {failure}, for the {_PATIENCE}rd time in a row; fix it, or raise {LIMIT}, and resume "
                "with ckpt=latest."
            ) from failure

    def _asked(self, arguments: tuple[Any, ...], offered: dict[str, Any]) -> Any:
        line = self._line or self._start()
        try:
            line.send_bytes(packed((arguments, offered)))
        except OSError as error:
            raise _dead() from error
        return self._answer(line, self.limit_s)

    def _answer(self, line: Connection, limit_s: float) -> Any:
        if not line.poll(limit_s):
            raise CallFailed(Verdict.TIMEOUT, f"took longer than {LIMIT}={limit_s:g}")
        try:
            kind, *content = pickle.loads(line.recv_bytes())
        except (EOFError, OSError) as error:
            raise _dead() from error
        if kind == "raised":
            raise Elsewhere(*content)
        result, self.state = content
        return result

    def _start(self) -> Connection:
        self._line, theirs = Pipe()
        # -P: the child must not import from the current directory, whatever lies there; its path comes with the object.
        path = [str(Path(ngrpo.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-P", "-m", "ngrpo.rewards.isolation.isolated_worker", str(theirs.fileno())]
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,  # what is sent to the trainer's group is for the trainer
        )
        self._running.append(process)
        theirs.close()
        self._line.send_bytes(pickle.dumps((sys.path, self.node, self.state, self.limit_s)))
        try:
            self._answer(self._line, _START_LIMIT_S)
        except (CallFailed, Elsewhere) as error:
            self.close()
            said = error if isinstance(error, Elsewhere) else "its process did not start"
            raise SettingError(f"{self.setting} cannot be made ({said}); fix it.") from error
        return self._line


def _dead() -> CallFailed:
    return CallFailed(Verdict.CRASHED, "ended the process that it runs in")


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    while running:
        process = running.pop()
        process.kill()
        process.wait()
