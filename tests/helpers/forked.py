"""The scripts, run by `fork_server`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from places import ROOT

HELPERS = str(ROOT / "tests/helpers")


@dataclass(frozen=True)
class Done:
    """How a script ended.

    Attributes:
        status: its exit status, negative for a signal; None if it was still running at the limit.
        said: on standard output and error.
        errors: on standard error alone; empty unless the two were to be kept apart.
        seconds: that it took.
    """

    status: int | None
    said: str
    errors: str
    seconds: float


class Scripts:
    """Runs scripts one after the other; start once, use often."""

    def __init__(self) -> None:
        self._outputs = tempfile.TemporaryDirectory(prefix="scripts-")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self._server = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/helpers/fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def run(
        self,
        command: Sequence[str | bytes],
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        limit_s: int = 15,
        path: Sequence[str] = (),
        closed_stdout: bool = False,
        memory_bytes: int = 0,
        errors_apart: bool = False,
        ranks: int = 0,
    ) -> Done:
        """Runs ``scripts/NAME`` with arguments.

        Args:
            command: the script's name, or its absolute path, and its arguments; bytes need not be UTF-8.
            cwd: the current directory.
            environment: variables beside those of this process.
            limit_s: seconds of processor time; three times as many by the clock, since tests share the machine.
            path: further entries of the Python path.
            closed_stdout: let nobody read what is printed.
            memory_bytes: limit of the address space; 0 for none.
            errors_apart: keep standard error apart from standard output.
            ranks: so many processes of one group, as torchrun starts them; 0 for a process without a launcher.
        """
        out, errors = (Path(self._outputs.name) / name for name in ("out", "errors"))
        for output in (out, errors):
            output.write_text("")
        request = {
            "command": [str(ROOT / "scripts" / str(command[0])), *map(_as_text, command[1:])],
            "cwd": str(cwd),
            "out": str(out),
            "errors": str(errors if errors_apart else out),
            "environment": dict(environment or {}),
            "limit_s": limit_s,
            "wall_s": 3 * limit_s,
            "path": list(path),
            "closed_stdout": closed_stdout,
            "memory_bytes": memory_bytes,
            "ranks": ranks,
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        said, told = (file.read_text(errors="replace") for file in (out, errors))
        return Done(answer["status"], said, told, answer["seconds"])

    def close(self) -> None:
        """Ends the server."""
        self._server.communicate()
        self._outputs.cleanup()


@cache
def server() -> Scripts:
    """The one server of this process, started at its first use and ended with the tests (conftest.py)."""
    return Scripts()


def succeed(
    *command: str, path: Sequence[str] = (), environment: Mapping[str, str] | None = None, ranks: int = 0
) -> str:
    """Runs a script in the repository's root, which must end well; returns its standard output.

    Args:
        command: the script's name, or its absolute path, and its arguments.
        path: further entries of the Python path, also of the processes that the script starts.
        environment: further variables.
        ranks: so many processes of one group, as torchrun starts them; 0 for a process without a launcher.
    """
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), *path])} | dict(environment or {})
    done = server().run(command, ROOT, variables, limit_s=240, path=path, errors_apart=True, ranks=ranks)
    assert done.status == 0, done.said[-3000:] + done.errors[-9000:]
    return done.said


def _as_text(argument: str | bytes) -> str:
    return argument if isinstance(argument, str) else "hex:" + argument.hex()


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function of a test's file returns in a fork, apart from this process; all of it is JSON."""
    return json.loads(_called(function, arguments).splitlines()[-1])


def call_in_ranks(function: Callable[[int, str], None], argument: Path, ranks: int) -> None:
    """Calls a function of a test's file in each of ``ranks`` processes, with the rank and the argument."""
    _called(function, [str(argument)], ranks)


def _called(function: Callable[..., Any], arguments: Sequence[Any], ranks: int = 0) -> str:
    file = Path(function.__code__.co_filename)
    command = (f"{HELPERS}/call_function.py", file.stem, function.__name__, json.dumps(arguments))
    return succeed(*command, path=[HELPERS, str(file.parent)], ranks=ranks)
