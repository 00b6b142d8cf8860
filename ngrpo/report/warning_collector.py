"""The warnings that a run gives, kept for its report."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ngrpo.report.run_description import RunWarning

_MOST = 200
"""Of a run: more of them nobody reads."""


class WarningCollector(logging.Handler):
    """Collects what is logged as a warning or worse; a message that came before is left out."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[RunWarning] = []
        self._messages: set[str] = set()
        self._listener: Callable[[RunWarning], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one record."""
        message = record.getMessage()
        if message in self._messages or len(self.found) >= _MOST:
            return
        self._messages.add(message)
        warning = RunWarning(datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds"), message)
        self.found.append(warning)
        if self._listener is not None:
            self._listener(warning)

    def listen(self, listener: Callable[[RunWarning], None]) -> None:
        """Passes on what was found so far, and what is found from now on."""
        for warning in self.found:
            listener(warning)
        self._listener = listener


@contextmanager
def collecting_warnings() -> Iterator[WarningCollector]:
    """Collects the warnings of all loggers while the block runs."""
    collector = WarningCollector()
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield collector
    finally:
        root.removeHandler(collector)
