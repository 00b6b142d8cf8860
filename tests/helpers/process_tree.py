"""What a run and the processes that it starts hold: memory, files, shared memory."""

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Holding:
    """Of one process: the name of what it runs, resident kB, those of them that are its own, and open files."""

    command: str
    resident: int
    private: int
    files: int


def tree(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def holding(pid: int) -> Holding | None:
    """None if the process is gone, or just about to be."""
    folder = _PROC / str(pid)
    try:
        memory = (folder / "smaps_rollup").read_text()
        command = (folder / "cmdline").read_text().replace("\0", " ")
        files = len(os.listdir(folder / "fd"))
    except OSError:
        return None
    kilobytes = {name: int(value) for name, value in re.findall(r"^(\w+): +(\d+) kB", memory, re.MULTILINE)}
    return Holding(command, kilobytes["Rss"], kilobytes["Anonymous"], files) if kilobytes else None


def assert_over(pids: Iterable[int], seconds: float) -> None:
    """Waits until the processes are gone."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if (_PROC / str(pid)).exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def shared_memory(pid: int) -> set[str]:
    """The names in /dev/shm that a process has mapped."""
    try:
        maps = (_PROC / str(pid) / "maps").read_text()
    except OSError:
        return set()
    return set(re.findall(r"/dev/shm/(\S+)", maps))


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses on which processes listen, as the kernel writes them: hexadecimal, in its byte order."""
    inodes = set()
    for pid in pids:
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
    rows = [line.split() for name in ("tcp", "tcp6") for line in (_PROC / "net" / name).read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}
