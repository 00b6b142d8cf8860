"""Runs the project's scripts as forks of one process that has imported everything: half a second instead of five.

Each fork has its own session, current directory, environment and output, and a limit of time. Several forks may be the
ranks of a process group, as torchrun would start them. Started by `forked`; reads a request a line, writes an answer a
line.
"""

import contextlib
import json
import os
import resource
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import transformers.models.auto.modeling_auto
import transformers.models.qwen2.modeling_qwen2  # noqa: F401
from lightning.pytorch.utilities import rank_zero_only

import ngrpo.entrypoints.evaluate
import ngrpo.entrypoints.replay_step
import ngrpo.entrypoints.train  # noqa: F401

torch.set_num_threads(1)


def child(request: dict[str, Any], rank: dict[str, str]) -> None:
    """What a fork does: becomes the script."""
    os.setsid()
    os.dup2(os.open(request["out"], os.O_WRONLY | os.O_APPEND), 1)
    os.dup2(os.open(request["errors"], os.O_WRONLY | os.O_APPEND), 2)
    if request.get("closed_stdout"):
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["cwd"])
    os.environ.update(request["environment"] | rank)
    rank_zero_only.rank = int(rank.get("RANK", 0))  # Lightning looks when it is imported
    resource.setrlimit(resource.RLIMIT_CPU, (request["limit_s"], request["limit_s"] + 1))
    if request.get("memory_bytes"):
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, encoding="utf-8", closefd=False) for n in (1, 2))
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    script, *arguments = request["command"]
    sys.argv = [script, *(os.fsdecode(bytes.fromhex(a[4:])) if a.startswith("hex:") else a for a in arguments)]
    sys.path[:0] = [str(Path(script).parent), *request["path"]]
    runpy.run_path(script, run_name="__main__")


def status_of(request: dict[str, Any], rank: dict[str, str]) -> int:
    """Returns what a Python process would end with."""
    try:
        child(request, rank)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def flushed(status: int) -> int:
    """Returns the status after the last lines are out; 120 where they cannot be, as Python does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = 120
    return status


def ranks_of(count: int) -> list[dict[str, str]]:
    """Returns the variables that torchrun gives its processes; those of a process without a launcher for none."""
    if count == 0:
        return [{}]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    group = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip
    return [group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def started(request: dict[str, Any], rank: dict[str, str]) -> int:
    """Forks; returns the process, which never comes back here."""
    pid = os.fork()
    if pid == 0:
        os._exit(flushed(status_of(request, rank)) & 0xFF)
    return pid


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Forks, waits for the end of all or of the first that fails or for the limit, and ends whatever was started."""
    start = time.monotonic()
    statuses: dict[int, int | None] = {started(request, rank): None for rank in ranks_of(request["ranks"])}
    while None in statuses.values() and not any(statuses.values()) and time.monotonic() - start < request["wall_s"]:
        time.sleep(0.01)
        for pid in [pid for pid, status in statuses.items() if status is None]:
            done, how = os.waitpid(pid, os.WNOHANG)
            statuses[pid] = os.waitstatus_to_exitcode(how) if done else None
    for pid, status in statuses.items():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if status is None:
            os.waitpid(pid, 0)
    failed = [status for status in statuses.values() if status]
    first = failed[0] if failed else None if None in statuses.values() else 0
    return {"status": first, "seconds": time.monotonic() - start}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what anything prints is no answer
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
