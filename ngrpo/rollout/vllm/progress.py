"""Progress of a vLLM call, read from the text of its progress bar.

vLLM reports tokens nowhere else: this parses what it writes behind the bar, and breaks when that text changes.
"""

import time
from typing import Any

from ngrpo.rollout.engine import Report


class FinishedRequests:
    """A stand-in for the tqdm bar that `LLM.wait_for_completion` updates with each finished request.

    vLLM reports how many requests finished, and their tokens only as a speed in the bar's text; it reports no tokens of
    running requests. So tokens are counted when their request finishes, and the speed is low at first.

    Args:
        report: gets the counts.
        total: requests of the call.
        **_: how a bar would look.
    """

    def __init__(self, report: Report, total: int, **_: Any) -> None:
        self.n = 0
        self.total = total
        self._report = report
        self._start = time.monotonic()
        self._tokens = 0.0

    @property
    def format_dict(self) -> dict[str, float]:
        """Seconds since the start, by which vLLM divides its tokens."""
        self._elapsed = max(time.monotonic() - self._start, 1e-9)
        return {"elapsed": self._elapsed}

    @property
    def postfix(self) -> str:
        """The speeds, as vLLM writes them."""
        return ""

    @postfix.setter
    def postfix(self, text: str) -> None:
        self._tokens = float(text.rpartition("output: ")[2].removesuffix(" toks/s")) * self._elapsed

    def update(self, finished: int) -> None:
        """Counts finished requests."""
        self.n += finished
        self._report(self.n, round(self._tokens))

    def refresh(self) -> None:
        """Is called at the end; there is nothing to draw."""

    def close(self) -> None:
        """Is called at the end; there is nothing to close."""
