"""Interrupts that wait until what they would break is done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def delayed_interrupt() -> Iterator[None]:
    """Makes Ctrl-C (SIGINT) wait until the block ends; a second one does not wait.

    Only the main thread gets signals: elsewhere, and where nothing in Python handles them, this does nothing.
    """
    usual: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []

    def noted(number: int, frame: FrameType | None) -> None:
        if waiting:
            usual(number, frame)
        waiting.append((number, frame))

    signal.signal(signal.SIGINT, noted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if waiting:
            usual(*waiting[0])
