"""The scripts, run by `fork_server`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from places import ROOT


@dataclass(frozen=True)
class Done:
    """How a script ended.

    Attributes:
        status: its exit status, negative for a signal; None if it was still running at the limit.
        said: on standard output and error.
        seconds: that it took.
    """

    status: int | None
    said: str
    seconds: float


class Scripts:
    """Runs scripts one after the other; start once, use often."""

    def __init__(self) -> None:
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
    ) -> Done:
        """Runs ``scripts/NAME`` with arguments.

        Args:
            command: the script's name and its arguments; bytes need not be UTF-8.
            cwd: the current directory.
            environment: variables beside those of this process.
            limit_s: seconds of processor time; three times as many by the clock, since tests share the machine.
            path: further entries of the Python path.
            closed_stdout: let nobody read what is printed.
            memory_bytes: limit of the address space; 0 for none.
        """
        out = cwd.parent / f"{cwd.name}.out"
        request = {
            "command": [str(ROOT / "scripts" / str(command[0])), *map(_as_text, command[1:])],
            "cwd": str(cwd),
            "out": str(out),
            "environment": dict(environment or {}),
            "limit_s": limit_s,
            "wall_s": 3 * limit_s,
            "path": list(path),
            "closed_stdout": closed_stdout,
            "memory_bytes": memory_bytes,
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        return Done(answer["status"], out.read_text(errors="replace"), answer["seconds"])

    def close(self) -> None:
        """Ends the server."""
        self._server.communicate()


def _as_text(argument: str | bytes) -> str:
    return argument if isinstance(argument, str) else "hex:" + argument.hex()
