"""The GPU of a thread, of two that a machine is told to have."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local

import pytest
import torch

from ngrpo.rollout.prefetch import Prefetch
from ngrpo.utils.current_gpu import on_current_gpu


class Gpus:
    """Keeps the current one of each thread, as CUDA does: a new thread's is the first."""

    def __init__(self) -> None:
        self.thread = local()

    def current(self) -> int:
        return getattr(self.thread, "number", 0)

    def set(self, number: int) -> None:
        self.thread.number = number

    @contextmanager
    def used(self, number: int) -> Iterator[None]:
        before = self.current()
        self.set(number)
        yield
        self.set(before)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    made = Gpus()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", made.current)
    monkeypatch.setattr(torch.cuda, "set_device", made.set)
    monkeypatch.setattr(torch.cuda, "device", made.used)
    return made


def test_a_function_works_there_in_any_thread(gpus: Gpus):
    gpus.set(1)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(gpus.current).result() == 0
        assert thread.submit(on_current_gpu(gpus.current)).result() == 1


def test_rollouts_are_prefetched_there(gpus: Gpus):
    gpus.set(1)
    prefetch, seen = Prefetch(lambda: ""), []
    prefetch.start(0, lambda: seen.append(gpus.current()))
    prefetch.wait()
    assert seen == [1]


def test_a_run_on_a_cpu_leaves_gpus_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("it would start CUDA"))
    assert on_current_gpu(list) is list
