"""Shared memory that killed processes leave; needs no vLLM."""

import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from ngrpo.rollout.vllm.left_memory import EngineMemory

PARENT = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]]).pid, flush=True)
input()
"""
CHILD = """
import sys, time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
held = SharedMemory(sys.argv[1])
resource_tracker.unregister(held._name, "shared_memory")  # else it removes what is to be left
print("mapped", flush=True)
time.sleep(600)
"""


def made_by_python() -> str:
    segment = SharedMemory(create=True, size=4096)
    segment.close()
    return segment.name


def made_by_a_worker() -> str:
    name = f"vllm_dist_{os.getpid()}"
    Path(f"/dev/shm/{name}").write_bytes(bytes(4096))
    return name


@pytest.mark.parametrize("make", [made_by_python, made_by_a_worker])
def test_what_a_killed_process_below_another_had_mapped_is_removed(make: Callable[[], str]) -> None:
    made, other = make(), SharedMemory(create=True, size=4096)
    command = [sys.executable, "-c", PARENT, CHILD, made]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, said = int(parent.stdout.readline()), parent.stdout.readline()
        assert said == "mapped\n"
        memory = EngineMemory([parent.pid])
        subprocess.run(["kill", "-9", str(child), str(parent.pid)], check=True)
    memory.remove()
    assert not Path(f"/dev/shm/{made}").exists()
    assert Path(f"/dev/shm/{other.name}").exists()
    memory.remove()
    other.close()
    other.unlink()


def test_processes_that_have_gone_have_nothing() -> None:
    EngineMemory([2**22 + 1]).remove()
