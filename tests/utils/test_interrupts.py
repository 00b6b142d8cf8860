"""Interrupts that wait."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ngrpo.utils.interrupts import delayed_interrupt


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(times: int, done: list[bool]) -> None:
    with delayed_interrupt():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        done.append(True)


def test_an_interrupt_waits_until_the_block_ends() -> None:
    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(1, done)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_does_not_wait() -> None:
    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, done)
    assert not done


def test_other_threads_and_foreign_handlers_are_left_alone() -> None:
    found = []

    def look() -> None:
        with delayed_interrupt():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look()
    assert found == [signal.default_int_handler, signal.SIG_IGN]
