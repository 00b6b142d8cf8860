"""Custom objects in a process of their own, which is replaced when it hangs or dies."""

import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ngrpo.distributed.collectives import serialize
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.isolation.child_process import ChildProcess, ProcessDied, UnsavableState
from ngrpo.rewards.terms.results import WrongResult
from ngrpo.types.scores import Score, Verdict
from ngrpo.utils.remote_error import RemoteError

LIMIT = "custom_reward_timeout_s"
"""The setting that says how long a call may take."""

_START_LIMIT_S = 300.0  # a reward model may have to be loaded
_MOST_FAILURES = 3


class CallFailed(Exception):
    """A call has no result; the verdict is that on what it was to judge, the message says why, as a clause."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict

    @property
    def remedy(self) -> str:
        """What to do about it, as a clause; more time helps only what ran out of it."""
        return f"fix it, or raise {LIMIT}" if self.verdict is Verdict.TIMEOUT else "fix it"


class IsolatedObject:
    """An object that lives in a process of its own.

    What the object changes in itself is lost with its process, except for the state of a stateful one, which the next
    process gets.

    Args:
        setting: where the object is configured, for messages.
        node: its ``_target_`` node, of plain containers.
        limit_s: most seconds that a call may take.

    Raises:
        SettingError: the object cannot be built.
    """

    def __init__(self, setting: str, node: Mapping[str, Any], limit_s: float) -> None:
        self.setting = setting
        self.node = dict(node)
        self.limit_s = limit_s
        self.state: dict[str, Any] | None = None
        self._failures_in_a_row = 0
        self._child = ChildProcess("ngrpo.rewards.isolation.isolated_worker")
        self._starting = False
        self._make_ready()

    def __call__(self, *arguments: Any, **offered: Any) -> list[float | Score]:
        """Calls the object.

        Args:
            arguments: picklable, the first with a length of N, the responses; they arrive as copies.
            offered: likewise, for an object that declares parameters of these names.

        Raises:
            CallFailed: it took too long, or ended its process.
            RemoteError: it raised.
            WrongResult: it did not return one number, or score, for each of N.
            RunError: one of the first two kinds, for the third time in a row.
        """
        try:
            result = self._call(serialize((arguments, offered)))
        except CallFailed as failure:
            self._count(failure)
            raise
        self._failures_in_a_row = 0
        if isinstance(result, WrongResult):
            raise result
        return result

    def restore(self, state: dict[str, Any] | None) -> None:
        """Gives the object a state, in a new process, which the next call waits for if it is not ready by then."""
        self.close()
        self.state = state
        with suppress(ProcessDied, TimeoutError):  # the next call tries again, and says so
            self._begin()

    def close(self) -> None:
        """Ends the process; a later call starts another."""
        self._child.kill()
        self._starting = False

    def _call(self, request: bytes) -> Any:
        self._make_ready()
        try:
            return self._taken(self._child.call(request, self.limit_s))
        except TimeoutError as error:
            raise CallFailed(Verdict.TIMEOUT, f"took longer than {LIMIT}={self.limit_s:g}") from error
        except ProcessDied as error:
            raise CallFailed(Verdict.CRASHED, "ended the process that it runs in") from error

    def _taken(self, reply: bytes) -> Any:
        """Returns the result in a reply, and keeps the state in it."""
        result, self.state = pickle.loads(reply)
        if isinstance(result, UnsavableState):
            raise SettingError(
                f"{self.setting} has a state that cannot be saved ({result}); let state_dict() return numbers, text, "
                "tensors, lists and dictionaries."
            )
        return result

    def _count(self, failure: CallFailed) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= _MOST_FAILURES:
            raise RunError(
                f"{self.setting} {failure}, for the {_MOST_FAILURES}rd time in a row; {failure.remedy}, and "
                "resume with ckpt=latest."
            ) from failure

    def _make_ready(self) -> None:
        """Waits until there is a process that takes calls."""
        try:
            if self._child.pid is None:
                self._begin()
            if self._starting:
                self._starting = False
                self._taken(self._child.started(_START_LIMIT_S))
        except (ProcessDied, RemoteError, TimeoutError) as error:
            reason = error if isinstance(error, RemoteError) else "its process did not start"
            raise SettingError(f"{self.setting} cannot be built ({reason}); fix it.") from error

    def _begin(self) -> None:
        # The import path comes with the object: a script has put its own folder there, which PYTHONPATH does not name.
        settings = pickle.dumps((sys.path, self.node, self.state))
        self._child.begin(settings, _START_LIMIT_S)
        self._starting = True
