"""The status line of a terminal: the current activity and its progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import get_console
from rich.live import Live
from rich.text import Text

from ngrpo.rollout.worker import RolloutWorker
from ngrpo.utils.numbers import short


class StatusLine:
    """A renderable line: generating (finished / total, tokens/s), scoring, updating.

    It is an `ngrpo.rollout.worker.Observer`.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.text = ""
        self.prefix = ""

    def __rich__(self) -> Text:
        return Text(self.prefix + self.text, no_wrap=True, overflow="ellipsis")

    def generating(self, total: int) -> Callable[[int, int], None]:
        """Begins the generation of ``total`` rollouts; returns what is told the finished ones and the tokens."""
        start = self._clock()
        self.text = f"generating 0/{total}"

        def report(finished: int, tokens: int) -> None:
            speed = tokens / max(self._clock() - start, 1e-9)
            self.text = f"generating {finished}/{total}  {short(speed)} tokens/s"

        return report

    def scoring(self, total: int) -> None:
        """Says that ``total`` answers are being compared with their references."""
        self.text = f"scoring {total} answers"


@contextmanager
def status_line(worker: RolloutWorker) -> Iterator[StatusLine]:
    """Shows what ``worker`` does while the block runs; where there is no terminal, nothing is observed."""
    line = StatusLine()
    if not get_console().is_interactive:
        yield line
        return
    worker.observer = line
    try:
        with Live(line, console=get_console(), transient=True):
            yield line
    finally:
        worker.observer = None
